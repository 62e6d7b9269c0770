package tokenize

import (
	"fmt"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/stretchr/testify/require"
)

// TestCacheIsExact: with the cache the ids are those without, on all golden
// texts and on random ones, the second time too, and when nothing fits.
func TestCacheIsExact(t *testing.T) {
	oneGoroutine(t)
	p := loadPools(t)
	for _, file := range golden.Files(t, "tokenize/ids/*.jsonl") {
		name := strings.TrimSuffix(path.Base(file), ".jsonl")
		t.Run(name, func(t *testing.T) {
			tok := loadGolden(t, name)
			for _, o := range []CacheOptions{{MinSegmentBytes: 1}, {MinSegmentBytes: 1, MaxBytes: 40_000}, {Isolated: true}} {
				c, err := tok.NewCache(o)
				require.NoError(t, err)
				for range 2 {
					for i, g := range goldenCases(t, file) {
						got, err := c.AppendIDs(nil, g.Text, EncodeOptions{AddSpecialTokens: g.AddSpecial}, fmt.Sprint(i%5))
						require.NoError(t, err)
						require.True(t, equalIDs(g.IDs, got), "%.200q", g.Text)
					}
				}
				for i := range 500 {
					text := p.text(i)
					got, err := c.AppendIDs(nil, text, EncodeOptions{}, "x")
					require.NoError(t, err)
					require.True(t, equalIDs(ids(t, tok, text), got), "%.200q", text)
				}
				stats := c.Stats()
				require.NotZero(t, stats.Hits)
				if o.MaxBytes != 0 {
					require.LessOrEqual(t, stats.Bytes, o.MaxBytes)
					require.NotZero(t, stats.Evictions)
				}
			}
		})
	}
}

// TestCacheRefused: with added tokens that take their neighbours along there
// is no cache.
func TestCacheRefused(t *testing.T) {
	for _, flag := range []string{"lstrip", "rstrip", "single_word"} {
		token := `{"id":2,"content":"<|im_start|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}`
		tok, err := Load(changed(t, "tiny", `{"added_tokens":[`+strings.Replace(token, `"`+flag+`":false`, `"`+flag+`":true`, 1)+`]}`), Options{})
		require.NoError(t, err)
		_, err = tok.NewCache(CacheOptions{})
		require.ErrorIs(t, err, ErrNoSegments)
	}
}

// TestCacheOverlaps does it for special tokens that overlap with others.
func TestCacheOverlaps(t *testing.T) {
	oneGoroutine(t)
	var added []string
	next := 2048
	for i, content := range []string{"QQ", "QQQ", "Q~", "~Z", "Q~Z", "Z~", "QZx", "ZQ", "x~y"} {
		added = append(added, fmt.Sprintf(`{"id":%d,"content":%q,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":%v}`, next, content, i%4 != 3))
		next++
	}
	tok, err := Load(changed(t, "tiny", `{"added_tokens":[`+strings.Join(added, ",")+`]}`), Options{})
	require.NoError(t, err)
	c, err := tok.NewCache(CacheOptions{MinSegmentBytes: 1})
	require.NoError(t, err)
	r := splitmix(7)
	for range 20_000 {
		var b strings.Builder
		for range 1 + r.below(14) {
			b.WriteByte("Q~Zxy"[r.below(5)])
		}
		got, err := c.AppendIDs(nil, b.String(), EncodeOptions{}, "")
		require.NoError(t, err)
		require.True(t, equalIDs(ids(t, tok, b.String()), got), "%q", b.String())
	}
	require.NotZero(t, c.Stats().Hits)
}

// TestCacheFairness: one tenant that sends ever new texts pushes out its
// own, not those of one that keeps to its share.
func TestCacheFairness(t *testing.T) {
	tok := loadGolden(t, "tiny")
	c, err := tok.NewCache(CacheOptions{MaxBytes: 800_000})
	require.NoError(t, err)
	send := func(tenant string, n int) {
		_, err := c.AppendIDs(nil, strings.Repeat(fmt.Sprintf("%s text %d. ", tenant, n), 40), EncodeOptions{}, tenant)
		require.NoError(t, err)
	}
	quiet := func() {
		for n := range 20 {
			send("quiet", n)
		}
	}
	quiet()
	for n := range 2000 {
		send("loud", n)
	}
	before := c.Stats()
	require.NotZero(t, before.Evictions)
	require.LessOrEqual(t, before.Bytes, int64(800_000))
	quiet()
	after := c.Stats()
	require.Equal(t, before.Misses, after.Misses)
	require.Equal(t, before.Hits+20, after.Hits)
}

func TestCacheIsolated(t *testing.T) {
	tok := loadGolden(t, "tiny")
	text := strings.Repeat("a shared system prompt ", 20)
	for isolated, hits := range map[bool]uint64{false: 2, true: 1} {
		c, err := tok.NewCache(CacheOptions{Isolated: isolated})
		require.NoError(t, err)
		for _, tenant := range []string{"a", "b", "a"} {
			_, err := c.AppendIDs(nil, text, EncodeOptions{}, tenant)
			require.NoError(t, err)
		}
		require.Equal(t, hits, c.Stats().Hits)
	}
	_, err := tok.NewCache(CacheOptions{MaxBytes: -1})
	require.Error(t, err)
}

func TestCacheConcurrentSafe(t *testing.T) {
	tok := loadGolden(t, "tiny")
	p := loadPools(t)
	c, err := tok.NewCache(CacheOptions{MinSegmentBytes: 1, MaxBytes: 200_000})
	require.NoError(t, err)
	want := make([][]uint32, 400)
	for i := range want {
		want[i] = ids(t, tok, p.text(i))
	}
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			var got []uint32
			for k := range want {
				i := (k*7 + g*13) % len(want)
				got, _ = c.AppendIDs(got[:0], p.text(i), EncodeOptions{}, fmt.Sprint(g%7))
				if !equalIDs(got, want[i]) {
					t.Errorf("text %d differs from the serial result", i)
					return
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, c.Stats().Bytes, int64(200_000))
}

func TestCacheNoAllocs(t *testing.T) {
	if raceEnabled || viewCopies {
		t.Skip("the race detector and purego allocate")
	}
	tok := loadGolden(t, "qwen3")
	for _, isolated := range []bool{false, true} {
		c, err := tok.NewCache(CacheOptions{Isolated: isolated})
		require.NoError(t, err)
		chat := chatText(benchText(t, 100_000))
		var dst []uint32
		require.Zero(t, testing.AllocsPerRun(20, func() {
			dst, _ = c.AppendIDs(dst[:0], chat, EncodeOptions{}, "tenant")
		}))
	}
}

// chatText cuts text into turns as a template lays them out.
func chatText(text string) string {
	var b strings.Builder
	for i := 0; len(text) > 0; i++ {
		n := min(len(text), 1500+i*37%3000)
		b.WriteString("<|im_start|>" + []string{"user", "assistant"}[i%2] + "\n" + text[:n] + "<|im_end|>\n")
		text = text[n:]
	}
	return b.String()
}

func BenchmarkNextTurn(b *testing.B) {
	tok := loadGolden(b, "qwen3")
	c, err := tok.NewCache(CacheOptions{})
	require.NoError(b, err)
	text := benchText(b, 600_000)
	chat := chatText(text[:580_000])
	_, err = c.AppendIDs(nil, chat, EncodeOptions{}, "t")
	require.NoError(b, err)
	turns := make([]string, 64)
	for i := range turns {
		turns[i] = chat + fmt.Sprintf("<|im_start|>user\n%d", i) + text[590_000:591_400] + "<|im_end|>\n<|im_start|>assistant\n"
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		sinkIDs, _ = c.AppendIDs(sinkIDs[:0], turns[i%len(turns)], EncodeOptions{}, "t")
		i++
	}
	b.ReportMetric(float64(len(sinkIDs)), "tokens")
}

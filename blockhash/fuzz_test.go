package blockhash

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// wildPrompt draws a prompt that need not make sense.
func wildPrompt(d dice) *Prompt {
	if d.IntN(40) == 1 {
		return nil
	}
	p := randomPrompt(d)
	texts := []string{"", "a", "\xff", "\xed\xa0\x80", "tenant", "é"}
	numbers := []int{math.MinInt, -1, 0, 1, 3, 1 << 30, math.MaxInt}
	if d.IntN(3) == 1 {
		p.Items = append(p.Items, Item{texts[d.IntN(6)], numbers[d.IntN(7)], numbers[d.IntN(7)]})
	}
	if d.IntN(8) == 1 {
		p.CacheSalt = texts[d.IntN(6)]
	}
	if d.IntN(8) == 1 {
		p.LoRA = &LoRA{texts[d.IntN(6)], texts[d.IntN(6)], int64(numbers[d.IntN(7)])}
	}
	if d.IntN(8) == 1 {
		p.ExtraKey = texts[d.IntN(6)]
	}
	if d.IntN(8) == 1 {
		p.Embeds = &Embeds{make([]byte, d.IntN(40)), numbers[d.IntN(7)]}
	}
	if d.IntN(8) == 1 {
		p.WideTokens = append(p.WideTokens, int64(numbers[d.IntN(7)]))
	}
	return p
}

// wildHasher draws any scheme and options; nil when New refuses them.
func wildHasher(d dice) *Hasher {
	all := Schemes()
	numbers := []int{0, 1, 2, 4, 16, -1, math.MaxInt, 3}
	h, err := New(Options{
		Scheme: all[d.IntN(len(all))], Algorithm: Algorithm(d.IntN(6)), BlockSize: numbers[(1+d.IntN(8))%8],
		Lookahead: numbers[d.IntN(8)], Seed: []Seed{SeedText("0"), {}, SeedRoot(make([]byte, 16)), SeedRoot(nil)}[d.IntN(4)],
		SharedObjects: d.IntN(2) == 1, MemoBytes: int64([]int{0, 0, 0, 4096}[d.IntN(4)]), EAGLE: d.IntN(4) == 1,
		DynamoEvents: d.IntN(4) == 1, PartialChunk: d.IntN(4) == 1, Beside: all[d.IntN(len(all))], XXH3Seed: uint64(d.IntN(3)),
	})
	if err != nil {
		return nil
	}
	return h
}

// FuzzAnything: no scheme, options or prompt make any function panic; all ways
// to hash a prompt give the same keys or all refuse; what Blocks says is what
// comes.
func FuzzAnything(f *testing.F) {
	for _, seed := range []string{"", "\x08\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00", "sixteen tokens or more and a salt",
		"\x0c\x00\x03\x00\x00\x01\x01\x01\x01\x07\x40\x00\x05\x06\x07\x08\x09\x0a"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &fuzzDice{data}
		h := wildHasher(d)
		if h == nil {
			return
		}
		p := wildPrompt(d)
		keys, err := h.AppendKeys(nil, p)
		digests, derr := h.AppendDigests(nil, p)
		var c Chain
		cerr := h.Start(&c, p)
		require.Equal(t, err == nil, derr == nil)
		require.Equal(t, err == nil, cerr == nil)
		if err != nil {
			require.ErrorIs(t, err, ErrPrompt)
			_, xerr := h.Explain(p, 0)
			require.ErrorIs(t, xerr, ErrPrompt)
			return
		}
		require.Len(t, keys, h.Blocks(p.Len()))
		require.Len(t, digests, len(keys)*h.DigestSize())
		for i, key := range keys {
			got, ok := c.Next()
			require.True(t, ok)
			require.Equal(t, key, got)
			require.Equal(t, digests[i*h.DigestSize():(i+1)*h.DigestSize()], c.Digest())
		}
		_, ok := c.Next()
		require.False(t, ok)
		block := d.IntN(4)
		if x, err := h.Explain(p, block); err == nil {
			require.Equal(t, keys[block], x.Key)
		}
		n := d.IntN(len(keys) + 2)
		if h.Resume(&c, p, n, digests[max(n-1, 0)*h.DigestSize():min(max(n, 1)*h.DigestSize(), len(digests))]) == nil {
			c.Next()
			c.Extend([]uint32{1, 2, 3, 4, 5})
			c.ExtendWide([]int64{-1, 2, 1 << 40, 4})
			for range 20 {
				c.Next()
			}
		}
	})
}

// FuzzContent: content keys of a prompt and of the events that would announce
// it are equal, in one span or two; nothing panics on spans that make no sense.
func FuzzContent(f *testing.F) {
	for _, seed := range []string{"", "\x05\x02\x00\x00\x40\x01\x02\x03\x04", "sixteen tokens or more and a salt"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &fuzzDice{data}
		all := Schemes()
		c, err := NewContent(ContentOptions{Scheme: all[d.IntN(len(all))], BlockSize: d.IntN(6), Lookahead: d.IntN(3),
			LoRAPath: d.IntN(2) == 1, Seed: uint64(d.IntN(2))})
		if err != nil {
			return
		}
		p := wildPrompt(d)
		keys, err := c.AppendKeys(nil, p)
		if err == nil {
			require.Len(t, keys, c.Blocks(p.Len()))
			var ch ContentChain
			require.NoError(t, c.Start(&ch, p))
			require.Equal(t, nonNil(keys), nonNil(drain(&ch, nil)))
			if c.opt.Lookahead == 0 && p.LoRA == nil && p.Items == nil && p.CacheSalt == "" && p.Embeds == nil && p.WideTokens == nil {
				got, err := c.AppendEventKeys(nil, &Span{Tokens: p.Tokens})
				require.NoError(t, err)
				require.Equal(t, nonNil(keys), nonNil(got))
			}
		}
		s := &Span{Parent: uint64(d.IntN(3)), LoRA: d.IntN(2) == 1, LoRAPath: "p"}
		for range d.IntN(20) {
			s.Tokens = append(s.Tokens, uint32(d.IntN(9)))
		}
		for range d.IntN(8) {
			var extras []Extra
			for range d.IntN(3) {
				extras = append(extras, Extra{ExtraKind(d.IntN(8)), []byte("xy")[:d.IntN(3)], int64(d.IntN(3))})
			}
			s.Extras = append(s.Extras, extras)
			s.Lookahead = append(s.Lookahead, make([]uint32, d.IntN(3)))
		}
		if got, err := c.AppendEventKeys(nil, s); err == nil {
			require.Len(t, got, len(s.Tokens)/c.BlockSize())
		}
	})
}

// FuzzNames: names and versions of any form give a value or an error that
// says so.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"0.31.0", "v0.31.0rc1+cpu", "sha256", "builtin", "", "0.4.6.post5", "1.", "999999.0", "0.1.2.3"} {
		f.Add("vllm", s)
		f.Add("sglang", s)
	}
	f.Fuzz(func(t *testing.T, engine, text string) {
		if s, err := SchemeFor(engine, text); err == nil {
			require.False(t, s.IsZero())
			_ = s.String()
		} else {
			require.ErrorIs(t, err, ErrScheme)
		}
		if a, err := ParseAlgorithm(text); err == nil {
			require.Equal(t, text, a.String())
		} else {
			require.ErrorIs(t, err, ErrAlgorithm)
		}
		_ = KeyOf([]byte(text))
		_ = SeedText(text).String() + SeedRoot([]byte(text)).String()
	})
}

package blockhash

import (
	"crypto/sha256"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/stretchr/testify/require"
)

func refSum(a Algorithm, msg []byte) []byte {
	if a == XXHash || a == XXHashCBOR {
		sum := xxh3.Hash128(msg).Bytes()
		return sum[:]
	}
	sum := sha256.Sum256(msg)
	return sum[:]
}

// slowDigests hashes a prompt the obvious way: build the tree of each block,
// write it with the reference encoders.
func slowDigests(h *Hasher, p *Prompt) (out []byte) {
	e := h.era
	ids := p.WideTokens
	for _, id := range p.Tokens {
		ids = append(ids, int64(id))
	}
	parent := h.AppendRoot(nil)
	size, look := h.BlockSize(), h.Lookahead()
	for start := 0; start+size+look <= len(ids); start += size {
		end := start + size
		var tokens, extra list
		for _, id := range ids[start:end] {
			tokens = append(tokens, id)
		}
		if p.LoRA != nil {
			switch {
			case e.tagged:
				extra = append(extra, list{text{"lora", true}, text{s: p.LoRA.Name}, text{s: p.LoRA.Path}})
			case e.loraID:
				extra = append(extra, p.LoRA.ID)
			default:
				extra = append(extra, text{s: p.LoRA.Name})
			}
		}
		for _, it := range p.Items {
			if it.Offset >= end+look || it.Offset+it.Length <= start {
				continue
			}
			offset := int64(it.Offset - start)
			switch {
			case e.tagged:
				extra = append(extra, list{text{"mm", true}, text{s: it.Identifier}, offset})
			case e.mmOffset:
				extra = append(extra, list{text{s: it.Identifier}, offset})
			default:
				extra = append(extra, text{s: it.Identifier})
			}
		}
		if p.CacheSalt != "" && start == 0 {
			if e.tagged {
				extra = append(extra, list{text{"cache_salt", true}, text{s: p.CacheSalt}})
			} else {
				extra = append(extra, text{s: p.CacheSalt})
			}
		}
		if p.Embeds != nil && e.embeds != embedsIgnored {
			rows := []byte{}
			for i := start; i < end+look && (i+1)*p.Embeds.BytesPerToken <= len(p.Embeds.Data); i++ {
				rows = append(rows, p.Embeds.Data[i*p.Embeds.BytesPerToken:(i+1)*p.Embeds.BytesPerToken]...)
			}
			switch {
			case e.tagged:
				extra = append(extra, list{text{"prompt_embeds", true}, refSum(SHA256, rows)})
			case e.embeds == embedsDigest:
				extra = append(extra, refSum(SHA256, rows))
			default:
				extra = append(extra, rows)
			}
		}
		var last node
		if extra != nil {
			last = extra
		}
		if look > 0 {
			l := list{last}
			for _, id := range ids[end : end+look] {
				l = append(l, id)
			}
			last = l
		}
		parent = refSum(h.opt.Algorithm, refEncode(h, list{parent, tokens, last}))
		out = append(out, parent...)
	}
	return out
}

func randomPrompt(d dice) *Prompt {
	p := &Prompt{}
	n := d.IntN(120)
	wide := d.IntN(8) == 0
	for range n {
		switch {
		case wide:
			p.WideTokens = append(p.WideTokens, randomInt(d))
		case d.IntN(30) == 0:
			p.Tokens = append(p.Tokens, uint32(randomInt(d)))
		default:
			p.Tokens = append(p.Tokens, uint32(d.IntN(200000)))
		}
	}
	words := []string{"", "a", "é", "b", "lora", "mm", "cache_salt", "tenant", "ключ", "0123456789abcdef", "Ā"}
	word := func() string { return words[d.IntN(len(words))] }
	if d.IntN(2) == 0 {
		given := func() string { return words[1+d.IntN(len(words)-1)] }
		p.LoRA = &LoRA{Name: given(), Path: given(), ID: max(randomInt(d), 1)}
	}
	if d.IntN(2) == 0 {
		p.CacheSalt = word()
	}
	if d.IntN(2) == 0 {
		at := 0
		for range d.IntN(9) {
			at += d.IntN(9)
			p.Items = append(p.Items, Item{word(), at, d.IntN(20)})
			at += p.Items[len(p.Items)-1].Length
		}
	}
	if d.IntN(4) == 0 {
		width := 1 + d.IntN(3)
		p.Embeds = &Embeds{make([]byte, width*d.IntN(n+1)), width}
		for i := range p.Embeds.Data {
			p.Embeds.Data[i] = byte(d.IntN(256))
		}
	}
	return p
}

func randomHasher(t testing.TB, d dice) *Hasher {
	schemes := vllmSchemes()
	opt := Options{Scheme: schemes[d.IntN(len(schemes))], BlockSize: 1 + d.IntN(20), SharedObjects: d.IntN(2) == 0}
	opt.Algorithm = Algorithm(d.IntN(int(numAlgorithms)))
	if !opt.Scheme.era().xxhash {
		opt.Algorithm &= 1
	}
	if opt.Scheme.era().lookahead {
		opt.Lookahead = d.IntN(5)
	}
	opt.Seed = SeedText("seed")
	return mustNew(t, opt)
}

func vllmSchemes() (list []Scheme) {
	for _, s := range Schemes() {
		if s.Engine() == "vllm" {
			list = append(list, s)
		}
	}
	return list
}

// checkChain holds every way to hash a prompt against the slow one.
func checkChain(t testing.TB, h *Hasher, p *Prompt, d dice) {
	t.Helper()
	want := slowDigests(h, p)
	got, err := h.AppendDigests(nil, p)
	require.NoError(t, err)
	require.Equal(t, want, append([]byte(nil), got...), "%v %v %+v", h.Scheme(), h.Algorithm(), p)

	// In random steps: hash some, append some.
	var c Chain
	at := d.IntN(p.Len() + 1)
	require.NoError(t, h.Start(&c, p.slice(0, at)))
	var stepwise []byte
	for {
		if d.IntN(3) > 0 {
			if _, ok := c.Next(); ok {
				stepwise = append(stepwise, c.Digest()...)
				continue
			}
			if at == p.Len() {
				break
			}
		}
		next := min(at+1+d.IntN(30), p.Len())
		extend(&c, p, at, next)
		at = next
		require.Equal(t, at, c.Len())
	}
	require.Equal(t, want, stepwise)
}

func TestChainAgainstReference(t *testing.T) {
	rounds := 3000
	if testing.Short() || raceEnabled {
		rounds = 300
	}
	for seed := range rounds {
		d := rand.New(rand.NewPCG(uint64(seed), 2))
		checkChain(t, randomHasher(t, d), randomPrompt(d), d)
	}
}

// FuzzChain: for every configuration and prompt, all ways to hash agree with
// the slow reference, or all refuse.
func FuzzChain(f *testing.F) {
	for _, seed := range []string{"", "\x01\x05\x02", "\x07\x03\x01\x00\x50\x00\x01\x02\x03\x04\x05\x06", "the quick brown fox jumps over the lazy dog, twice"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &fuzzDice{data}
		h, p := randomHasher(t, d), randomPrompt(d)
		if checkPrompt(p) == nil {
			checkChain(t, h, p, &steadyDice{fuzzDice: d})
		}
	})
}

// steadyDice never ends in a row of zeros, with which a loop may not end.
type steadyDice struct {
	*fuzzDice
	n int
}

func (s *steadyDice) IntN(n int) int {
	s.n++
	return (s.fuzzDice.IntN(n) + s.n) % n
}

// TestExtendAcrossWidths: ids of both widths can follow each other.
func TestExtendAcrossWidths(t *testing.T) {
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 3, Seed: SeedText("0")})
	all := []int64{1, 2, 3, 4, -5, 6, 7, 1 << 40, 9, 10, 11, 12}
	want, err := h.AppendDigests(nil, &Prompt{WideTokens: all})
	require.NoError(t, err)
	for _, early := range []bool{false, true} {
		var c Chain
		var got []byte
		drain := func() {
			for {
				if _, ok := c.Next(); !ok {
					return
				}
				got = append(got, c.Digest()...)
			}
		}
		require.NoError(t, h.Start(&c, &Prompt{Tokens: []uint32{1, 2, 3, 4}}))
		if early {
			drain()
		}
		c.ExtendWide([]int64{-5, 6})
		c.Extend([]uint32{7})
		if early {
			drain()
		}
		c.ExtendWide([]int64{1 << 40})
		c.Extend([]uint32{9, 10, 11, 12})
		drain()
		require.Equal(t, want, got)
	}
}

// TestExtendKeepsCallersTokens: Extend copies, and does not write to the
// prompt's slice although it has room.
func TestExtendKeepsCallersTokens(t *testing.T) {
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 2, Seed: SeedText("0")})
	tokens := make([]uint32, 3, 10)
	var c Chain
	require.NoError(t, h.Start(&c, &Prompt{Tokens: tokens}))
	more := []uint32{7, 8, 9}
	c.Extend(more)
	more[0] = 99
	require.Equal(t, make([]uint32, 7), tokens[3:10])
	want, err := h.AppendKeys(nil, &Prompt{Tokens: []uint32{0, 0, 0, 7, 8, 9}})
	require.NoError(t, err)
	for _, key := range want {
		got, ok := c.Next()
		require.True(t, ok)
		require.Equal(t, key, got)
	}
}

// TestHasherConcurrentSafe: one Hasher, many goroutines.
func TestHasherConcurrentSafe(t *testing.T) {
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 16, Seed: SeedText("0")})
	content, err := NewContent(ContentOptions{Scheme: h.Scheme(), BlockSize: 16})
	require.NoError(t, err)
	d := rand.New(rand.NewPCG(1, 3))
	p := randomPrompt(d)
	for p.WideTokens != nil || p.Len() < 64 {
		p = randomPrompt(d)
	}
	want, wantContent := keysOf(t, h, p), []uint64(nil)
	wantContent, err = content.AppendKeys(nil, p)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				keys, _ := h.AppendKeys(nil, p)
				other, _ := content.AppendKeys(nil, p)
				if len(keys) != len(want) || keys[0] != want[0] || keys[len(keys)-1] != want[len(want)-1] ||
					other[len(other)-1] != wantContent[len(wantContent)-1] {
					t.Error("keys differ")
					return
				}
			}
		})
	}
	wg.Wait()
}

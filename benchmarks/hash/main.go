// Command hash measures package blockhash against the floor: the hash function
// alone, over the same messages already encoded. It prints one JSON object a
// line. Run it with `make bench-hash` from the project's root.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/kvatlas/kvatlas/benchmarks/internal/cputime"
	"github.com/kvatlas/kvatlas/blockhash"
)

// result is one line of output. Times are per block.
type result struct {
	Bench  string  `json:"bench"` // algorithm/tokens/block size
	NS     float64 `json:"ns_per_block"`
	Floor  float64 `json:"floor_ns_per_block,omitempty"`
	Ratio  float64 `json:"ratio,omitempty"`
	Allocs float64 `json:"allocs"`
	Note   string  `json:"note,omitempty"`
}

var (
	rounds = flag.Int("rounds", 15, "timings of each kind, alternating; the median counts")
	runs   = flag.Int("runs", 1, "go through all so many times, and print the medians at the end")
	only   = flag.String("run", "", "only benchmarks whose name matches this regular expression")
	peers  = flag.String("peers", "", "the program made of rust/: its benchmarks go through the same runs")
	filter *regexp.Regexp
)

func main() {
	flag.Parse()
	filter = regexp.MustCompile(*only)
	runtime.GOMAXPROCS(1) // one core
	runtime.LockOSThread()
	for range *runs {
		all()
	}
	if *runs > 1 {
		printMedians()
	}
}

func all() {
	for _, tokens := range []int{1_000, 8_000, 100_000, 1_000_000} {
		for _, block := range []int{16, 64, 256} {
			ids := workload(tokens)
			for _, a := range []blockhash.Algorithm{blockhash.SHA256, blockhash.SHA256CBOR, blockhash.XXHash, blockhash.XXHashCBOR} {
				algorithm(a, ids, block)
			}
			content(ids, block)
		}
	}
	nextTurn()
	pairs()
	if *peers != "" {
		others()
	}
}

// others takes the results of the routers' own hashes.
func others() {
	out, err := exec.Command(*peers).Output()
	check(err)
	for line := range bytes.Lines(out) {
		var r result
		check(json.Unmarshal(line, &r))
		if filter.MatchString(r.Bench) {
			add(r)
		}
	}
}

// pairs hashes eight prompts together, the floor being one after the other.
func pairs() {
	const tokens, block = 8_000, 16
	for _, a := range []blockhash.Algorithm{blockhash.SHA256, blockhash.SHA256CBOR} {
		bench := name(a.String()+"-each", tokens, block)
		if !filter.MatchString(bench) {
			continue
		}
		h := newHasher(a, block)
		ids := workload(8 * tokens)
		var prompts []*blockhash.Prompt
		var messages [][]byte
		for i := range 8 {
			p := &blockhash.Prompt{Tokens: ids[i*tokens : (i+1)*tokens]}
			prompts = append(prompts, p)
			messages = append(messages, encoded(h, p)...)
		}
		var keys [][]uint64
		report(bench, len(messages), func() {
			for i := range keys {
				keys[i] = keys[i][:0]
			}
			keys, _ = h.AppendKeysEach(keys, prompts)
		}, func() {
			for _, m := range messages {
				runtime.KeepAlive(sha256.Sum256(m))
			}
		})
	}
}

// nextTurn compares the next turn of a conversation, 68,000 tokens of which
// 63,000 were seen, with hashing all of it. "memo": the Hasher remembers;
// "resume": the caller kept the conversation's last digest.
func nextTurn() {
	const seen, total, block = 63_000, 68_000, 16
	ids := workload(total)
	plain := newHasher(blockhash.SHA256, block)
	scheme, err := blockhash.SchemeFor("vllm", "0.31.0")
	check(err)
	h, err := blockhash.New(blockhash.Options{Scheme: scheme, BlockSize: block, Seed: blockhash.SeedText("0"), MemoBytes: 64 << 20})
	check(err)
	prompt := &blockhash.Prompt{Tokens: ids}
	_, err = h.AppendKeys(nil, &blockhash.Prompt{Tokens: ids[:seen]})
	check(err)
	whole := func() { keySink, _ = plain.AppendKeys(keySink[:0], prompt) }
	turn := uint32(0)
	next := func() {
		turn++
		ids[seen] = turn // every turn is new
		keySink, _ = h.AppendKeys(keySink[:0], prompt)
	}
	blocks := h.Blocks(total)
	if bench := "next-turn-memo/68k/16"; filter.MatchString(bench) {
		report(bench, blocks, next, whole)
		st := h.MemoStats()
		fmt.Fprintf(os.Stderr, "memo: %+v\n", st)
	}
	digests, err := plain.AppendDigests(nil, &blockhash.Prompt{Tokens: ids[:seen]})
	check(err)
	var chain blockhash.Chain
	resume := func() {
		check(plain.Resume(&chain, prompt, plain.Blocks(seen), digests[len(digests)-32:]))
		for {
			if _, ok := chain.Next(); !ok {
				break
			}
		}
	}
	if bench := "next-turn-resume/68k/16"; filter.MatchString(bench) {
		report(bench, blocks, resume, whole)
	}
}

// workload returns ids as a vocabulary of 150,000 gives them: a third below
// 65,536 on average, so that blocks have messages of different lengths.
func workload(n int) []uint32 {
	ids := make([]uint32, n)
	state := uint64(1)
	for i := range ids {
		state = state*6364136223846793005 + 1442695040888963407
		ids[i] = uint32((state >> 33) % 151_936)
	}
	return ids
}

func name(algorithm string, tokens, block int) string {
	if tokens >= 1_000_000 {
		return fmt.Sprintf("%s/%dM/%d", algorithm, tokens/1_000_000, block)
	}
	return fmt.Sprintf("%s/%dk/%d", algorithm, tokens/1_000, block)
}

func newHasher(a blockhash.Algorithm, block int) *blockhash.Hasher {
	scheme, err := blockhash.SchemeFor("vllm", "0.31.0")
	check(err)
	h, err := blockhash.New(blockhash.Options{Scheme: scheme, Algorithm: a, BlockSize: block, Seed: blockhash.SeedText("0")})
	check(err)
	return h
}

// sink keeps results alive.
var (
	keySink []uint64
)

func algorithm(a blockhash.Algorithm, ids []uint32, block int) {
	bench := name(a.String(), len(ids), block)
	if !filter.MatchString(bench) {
		return
	}
	h := newHasher(a, block)
	prompt := &blockhash.Prompt{Tokens: ids}
	messages := encoded(h, prompt)
	ours := func() { keySink, _ = h.AppendKeys(keySink[:0], prompt) }
	floor := func() {
		for _, m := range messages {
			runtime.KeepAlive(sha256.Sum256(m))
		}
	}
	if a == blockhash.XXHash || a == blockhash.XXHashCBOR {
		floor = func() {
			for _, m := range messages {
				runtime.KeepAlive(xxh3.Hash128(m))
			}
		}
	}
	report(bench, len(messages), ours, floor)
}

func content(ids []uint32, block int) {
	bench := name("content", len(ids), block)
	if !filter.MatchString(bench) {
		return
	}
	scheme, err := blockhash.SchemeFor("vllm", "0.31.0")
	check(err)
	c, err := blockhash.NewContent(blockhash.ContentOptions{Scheme: scheme, BlockSize: block})
	check(err)
	prompt := &blockhash.Prompt{Tokens: ids}
	report(bench, c.Blocks(len(ids)), func() { keySink, _ = c.AppendKeys(keySink[:0], prompt) }, nil)
}

// encoded returns the message of every block of a prompt, made with the
// package's own Explain and checked to give its digests.
func encoded(h *blockhash.Hasher, p *blockhash.Prompt) (messages [][]byte) {
	digests, err := h.AppendDigests(nil, p)
	check(err)
	size := h.DigestSize()
	for i := range h.Blocks(p.Len()) {
		m, err := h.AppendMessage(nil, p, i, parent(h, digests, i))
		check(err)
		messages = append(messages, m)
		var sum []byte
		if size == sha256.Size {
			s := sha256.Sum256(m)
			sum = s[:]
		} else {
			s := xxh3.Hash128(m).Bytes()
			sum = s[:]
		}
		if !slices.Equal(sum, digests[i*size:(i+1)*size]) {
			check(fmt.Errorf("message %d does not give its digest", i))
		}
	}
	return messages
}

func parent(h *blockhash.Hasher, digests []byte, block int) []byte {
	if block == 0 {
		return h.AppendRoot(nil)
	}
	size := h.DigestSize()
	return digests[(block-1)*size : block*size]
}

// report times both alternately, so that a busy machine slows both.
func report(bench string, blocks int, ours, floor func()) {
	ours() // grow buffers
	repeat := max(1, 200_000/blocks/4)
	measure := func(f func()) float64 {
		start := cputime.Now()
		for range repeat {
			f()
		}
		return float64((cputime.Now() - start).Nanoseconds()) / float64(repeat*blocks)
	}
	var a, b []float64
	for range *rounds {
		a = append(a, measure(ours))
		if floor != nil {
			b = append(b, measure(floor))
		}
	}
	r := result{Bench: bench, NS: median(a), Allocs: testing.AllocsPerRun(3, ours)}
	if floor != nil {
		r.Floor = median(b)
		r.Ratio = round(r.NS / r.Floor)
	}
	r.NS, r.Floor = round(r.NS), round(r.Floor)
	add(r)
}

// add prints a result, or keeps it when there are several runs.
func add(r result) {
	if *runs == 1 {
		check(json.NewEncoder(os.Stdout).Encode(r))
		return
	}
	if results[r.Bench] == nil {
		order = append(order, r.Bench)
	}
	results[r.Bench] = append(results[r.Bench], r)
}

// What several runs gave, and the order of benchmarks.
var (
	results = map[string][]result{}
	order   []string
)

func printMedians() {
	for _, bench := range order {
		var ns, floor, ratio []float64
		for _, r := range results[bench] {
			ns, floor, ratio = append(ns, r.NS), append(floor, r.Floor), append(ratio, r.Ratio)
		}
		r := results[bench][0]
		r.NS, r.Floor, r.Ratio = median(ns), median(floor), median(ratio)
		check(json.NewEncoder(os.Stdout).Encode(r))
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func round(v float64) float64 { return float64(int(v*1000+0.5)) / 1000 }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

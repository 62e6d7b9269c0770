// Command tokenize measures package tokenize and prints one JSON object a
// line. Run it with `make bench-tokenize` from the project's root:
//
//	make bench-tokenize ARGS='-tokenizers DIR -python python3'
//
// DIR holds NAME.json or NAME.json.gz, such as fetch-tokenizers.py makes; by
// default the vocabularies of testdata are used. With -python, Hugging Face
// tokenizers, tiktoken and LiteLLM are measured too, those that are
// installed there, on the same text and after their ids were compared.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvatlas/kvatlas/benchmarks/internal/cputime"
	"github.com/kvatlas/kvatlas/tokenize"
)

// result is one line of output. Times are CPU time of one thread where the
// system tells it, else wall time.
type result struct {
	Bench  string  `json:"bench"` // what/vocabulary
	Tokens int     `json:"tokens,omitempty"`
	Bytes  int     `json:"bytes,omitempty"`
	MS     float64 `json:"ms"`                    // best of several calls
	Per    float64 `json:"ms_per_100k,omitempty"` // per 100,000 tokens
	Wall   float64 `json:"wall_ms,omitempty"`     // fastest call by the clock
	MBs    float64 `json:"mb_per_s,omitempty"`
	Allocs float64 `json:"allocs"`
	Ratio  float64 `json:"ratio,omitempty"`
	Heap   float64 `json:"heap_mb,omitempty"`
	Note   string  `json:"note,omitempty"`
}

var (
	folder = flag.String("tokenizers", "../testdata/tokenize/tokenizers", "folder with NAME.json or NAME.json.gz")
	python = flag.String("python", "", "a Python with tokenizers, tiktoken or litellm installed")
	only   = flag.String("run", "", "comma-separated vocabularies")
	rounds = flag.Int("rounds", 15, "timings of each kind; the best counts")
)

func main() {
	flag.Parse()
	runtime.LockOSThread()
	names, err := vocabularies()
	check(err)
	text := corpus(460_000)
	for _, name := range names {
		if *only == "" || slices.Contains(strings.Split(*only, ","), name) {
			measure(name, text)
		}
	}
	if *python != "" {
		check(peers(names, text))
	}
}

func vocabularies() ([]string, error) {
	entries, err := os.ReadDir(*folder)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(strings.TrimSuffix(e.Name(), ".gz"), ".json"); ok {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no NAME.json in %s", *folder)
	}
	return slices.Compact(names), nil
}

func load(name string) *tokenize.Tokenizer {
	tok, err := tokenize.LoadFile(filepath.Join(*folder, name+".json"), tokenize.Options{IgnoreTruncation: true, IgnorePadding: true})
	check(err)
	return tok
}

func measure(name, text string) {
	var refused *tokenize.UnsupportedError
	if _, err := tokenize.LoadFile(filepath.Join(*folder, name+".json"), tokenize.Options{}); errors.As(err, &refused) {
		print(result{Bench: "load/" + name, Note: refused.Error()})
		return
	}
	// Cold: the first call of a tokenizer that was just loaded.
	var tok *tokenize.Tokenizer
	var loads, cold, coldWall []time.Duration
	var heap float64
	dst := make([]uint32, 0, len(text))
	for range 5 {
		tok = nil
		before := heapMB()
		loads = append(loads, cpu(func() { tok = load(name) }))
		heap = heapMB() - before
		start := time.Now()
		cold = append(cold, cpu(func() { dst = encode(tok, dst, text) }))
		coldWall = append(coldWall, time.Since(start))
	}
	print(result{Bench: "load/" + name, MS: ms(slices.Min(loads)), Heap: heap, Note: "from the file, decompression included where it is zipped"})
	r := result{Bench: "encode-cold/" + name, Tokens: len(dst), Bytes: len(text), MS: ms(slices.Min(cold)), Wall: ms(slices.Min(coldWall))}
	r.rates()
	r.Note = "first call after load"
	print(r)

	var warm, wall []time.Duration
	for range *rounds {
		start := time.Now()
		warm = append(warm, cpu(func() { dst = encode(tok, dst, text) }))
		wall = append(wall, time.Since(start))
	}
	r = result{Bench: "encode-warm/" + name, Tokens: len(dst), Bytes: len(text), MS: ms(slices.Min(warm)), Wall: ms(slices.Min(wall))}
	r.rates()
	r.Allocs = testing.AllocsPerRun(3, func() { dst = encode(tok, dst, text) })
	print(r)
	nextTurn(name, tok, text)
	twoCores(name, tok, text)
}

// nextTurn encodes a chat whose turns are known but for the last one of
// about 300 tokens, through the cache of segments.
func nextTurn(name string, tok *tokenize.Tokenizer, text string) {
	mark := map[string]string{"qwen3": "<|im_end|>\n<|im_start|>", "tiny": "<|im_end|>", "llama3.1": "<|eot_id|>", "gpt-oss": "<|end|>", "gpt-4o": "<|endoftext|>",
		"deepseek-v3": "<｜end▁of▁sentence｜>", "gemma3": "<end_of_turn>", "llama2": "</s>", "mistral-v3": "</s>", "mistral-v3-first": "</s>", "anthropic": "<EOT>"}[name]
	if mark == "" {
		return
	}
	var chat strings.Builder
	for i := 0; i+2000 < len(text); i += 2000 {
		chat.WriteString(strings.ToValidUTF8(text[i:i+2000], "") + mark)
	}
	cache, err := tok.NewCache(tokenize.CacheOptions{})
	check(err)
	dst, err := cache.AppendIDs(nil, chat.String(), tokenize.EncodeOptions{}, "")
	check(err)
	var times, wall []time.Duration
	for i := range *rounds {
		turn := chat.String() + fmt.Sprint("turn ", i, " ") + text[:1400] + mark
		start := time.Now()
		times = append(times, cpu(func() { dst, err = cache.AppendIDs(dst[:0], turn, tokenize.EncodeOptions{}, "") }))
		wall = append(wall, time.Since(start))
		check(err)
	}
	if whole := encode(tok, nil, chat.String()+fmt.Sprint("turn ", *rounds-1, " ")+text[:1400]+mark); !slices.Equal(whole, dst) {
		check(fmt.Errorf("%s: the cache gives other ids", name))
	}
	r := result{Bench: "next-turn/" + name, Tokens: len(dst), MS: ms(slices.Min(times)), Wall: ms(slices.Min(wall)), Note: "all but about 300 tokens known to the cache"}
	r.Per = r.MS / float64(r.Tokens) * 1e5
	print(r)
}

// twoCores compares the work done by one goroutine and by two in the same
// time, on prompts of mixed lengths. The ratio is of CPU time per prompt,
// times two: what is lost to locks and shared memory, whatever else runs.
func twoCores(name string, tok *tokenize.Tokenizer, text string) {
	if runtime.GOMAXPROCS(0) < 2 {
		return
	}
	work := func() time.Duration {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		dst := make([]uint32, 0, len(text))
		return cpu(func() {
			for i := range 400 {
				at := i * 997 % (len(text) / 2)
				dst = encode(tok, dst, text[at:at+1+i*i%20_000])
			}
		})
	}
	var ratios []float64
	for range 7 {
		alone := work()
		var both [2]time.Duration
		var wg sync.WaitGroup
		for i := range both {
			wg.Go(func() { both[i] = work() })
		}
		wg.Wait()
		ratios = append(ratios, 2*2*float64(alone)/float64(both[0]+both[1]))
	}
	slices.Sort(ratios)
	print(result{Bench: "two-cores/" + name, Ratio: ratios[len(ratios)/2], Note: "work of two goroutines against one, by CPU time"})
}

func encode(tok *tokenize.Tokenizer, dst []uint32, text string) []uint32 {
	dst, err := tok.AppendIDs(dst[:0], text, tokenize.EncodeOptions{})
	check(err)
	return dst
}

func (r *result) rates() {
	r.Per = r.MS / float64(r.Tokens) * 1e5
	r.MBs = float64(r.Bytes) / r.MS / 1e3
}

func cpu(f func()) time.Duration {
	start := cputime.Now()
	f()
	return cputime.Now() - start
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

func heapMB() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

func print(r result) {
	b, err := json.Marshal(r)
	check(err)
	fmt.Println(string(b))
}

func check(err error) {
	if err == nil {
		return
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: run it through make bench-tokenize, or give -tokenizers", err)
	}
	fmt.Fprintln(os.Stderr, "bench-tokenize:", err)
	os.Exit(1)
}

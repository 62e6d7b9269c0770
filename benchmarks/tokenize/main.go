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
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/kvatlas/kvatlas/benchmarks/internal/cputime"
	"github.com/kvatlas/kvatlas/internal/corpus"
	"github.com/kvatlas/kvatlas/tokenize"
	"github.com/kvatlas/kvatlas/tokenize/chat"
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
	Floor  float64 `json:"floor,omitempty"`
	Heap   float64 `json:"heap_mb,omitempty"`
	Note   string  `json:"note,omitempty"`
}

var (
	folder         = flag.String("tokenizers", "../testdata/tokenize/tokenizers", "folder with NAME.json or NAME.json.gz")
	templateFolder = flag.String("templates", "../tokenize/chat/testdata/templates", "folder with chat templates")
	python         = flag.String("python", "", "a Python with tokenizers, tiktoken or litellm installed")
	only           = flag.String("run", "", "comma-separated vocabularies")
	rounds         = flag.Int("rounds", 15, "timings of each kind; the best counts")
)

func main() {
	flag.Parse()
	runtime.LockOSThread()
	names, err := vocabularies()
	check(err)
	text, err := corpus.Text(460_000)
	check(err)
	if *only != "" {
		wanted := strings.Split(*only, ",")
		names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(wanted, name) })
	}
	for _, name := range names {
		measure(name, text)
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
// about 300 tokens, through the cache of segments; and where there is a
// template, renders it first.
func nextTurn(name string, tok *tokenize.Tokenizer, text string) {
	mark, ok := marks[name]
	if !ok {
		return
	}
	const size = 2000
	var known strings.Builder
	var turns []string
	for i := 0; i+size < len(text); i += size {
		turns = append(turns, strings.ToValidUTF8(text[i:i+size], ""))
		known.WriteString(turns[len(turns)-1] + mark)
	}
	last := func(i int) string { return fmt.Sprint("turn ", i, " ") + text[:1400] }
	measureTurns("next-turn/"+name, tok, func(dst []byte, i int) []byte {
		return append(append(append(dst, known.String()...), last(i)...), mark...)
	}, false)

	if file, ok := templates[name]; ok {
		source, err := os.ReadFile(filepath.Join(*templateFolder, file))
		check(err)
		t, err := chat.Parse(string(source), chat.Options{SpecialTokens: map[string]string{"bos_token": "<s>", "eos_token": "</s>"}})
		check(err)
		in := &chat.Input{AddGenerationPrompt: true, Messages: &chat.List{}}
		for i, turn := range append(turns[:len(turns)/2*2], "") {
			m := &chat.Dict{}
			m.Set("role", []string{"user", "assistant"}[i%2])
			m.Set("content", turn)
			in.Messages.Items = append(in.Messages.Items, m)
		}
		measureTurns("chat-turn/"+name, tok, func(dst []byte, i int) []byte {
			in.Messages.Items[len(in.Messages.Items)-1].(*chat.Dict).Set("content", last(i))
			dst, err := t.AppendRender(dst, in)
			check(err)
			return dst
		}, true)
	}
}

// marks are special tokens that end a turn, templates the files of chat
// templates.
var (
	marks = map[string]string{"qwen3": "<|im_end|>\n<|im_start|>", "tiny": "<|im_end|>", "llama3.1": "<|eot_id|>", "gpt-oss": "<|end|>", "gpt-4o": "<|endoftext|>",
		"deepseek-v3": "<｜end▁of▁sentence｜>", "gemma3": "<end_of_turn>", "llama2": "</s>", "mistral-v3": "</s>", "mistral-v3-first": "</s>", "anthropic": "<EOT>"}
	templates = map[string]string{"qwen3": "Qwen-Qwen3-0.6B.jinja", "deepseek-v3": "deepseek-ai-DeepSeek-V3.jinja",
		"mistral-v3": "mistralai-Mistral-7B-Instruct-v0.3.jinja"}
)

// measureTurns times tokens of the chat with its i-th last turn through a
// cache that knows the others; with rendering, that of the text too.
func measureTurns(bench string, tok *tokenize.Tokenizer, text func(dst []byte, i int) []byte, rendering bool) {
	cache, err := tok.NewCache(tokenize.CacheOptions{})
	check(err)
	prompt := text(nil, -1)
	dst, err := cache.AppendIDs(nil, string(prompt), tokenize.EncodeOptions{}, "")
	check(err)
	var times, wall []time.Duration
	for i := range *rounds {
		if !rendering {
			prompt = text(prompt[:0], i)
		}
		start := time.Now()
		times = append(times, cpu(func() {
			if rendering {
				prompt = text(prompt[:0], i)
			}
			dst, err = cache.AppendIDs(dst[:0], unsafe.String(unsafe.SliceData(prompt), len(prompt)), tokenize.EncodeOptions{}, "")
		}))
		wall = append(wall, time.Since(start))
		check(err)
	}
	if whole := encode(tok, nil, string(prompt)); !slices.Equal(whole, dst) {
		check(fmt.Errorf("%s: the cache gives other ids", bench))
	}
	r := result{Bench: bench, Tokens: len(dst), Bytes: len(prompt), MS: ms(slices.Min(times)), Wall: ms(slices.Min(wall)), Note: "all but about 300 tokens known to the cache"}
	if rendering {
		r.Note = "rendered by the chat template, " + r.Note
	}
	r.Per = r.MS / float64(r.Tokens) * 1e5
	print(r)
}

// twoCores compares what one goroutine gets done and what two do, on a steady
// stream of prompts of mixed lengths, by the clock. Measured in the same way, in
// rounds between, are two that share nothing, each with a tokenizer of its own, and a
// loop that keeps a core's arithmetic units busy: what two of it lose is the machine's
// (the floor). Virtual
// processors are two threads of one core at times, and other programs take
// their turn, so rounds are short and many, and the best of each kind count
// (the upper twentieth begins there) as the best calls do elsewhere; the note
// has the medians.
func twoCores(name string, tok *tokenize.Tokenizer, text string) {
	if runtime.GOMAXPROCS(0) < 2 {
		return
	}
	prompts := make([]string, 1600)
	for i := range prompts {
		at := i * 997 % (len(text) / 2)
		prompts[i*7%len(prompts)] = text[at : at+1+i*i%20_000]
	}
	var next atomic.Uint64
	mixed := func(tok *tokenize.Tokenizer) func() int {
		dst := make([]uint32, 0, len(text))
		return func() int {
			dst = encode(tok, dst, prompts[next.Add(1)%uint64(len(prompts))])
			return len(dst)
		}
	}
	alone := func() func() int {
		return func() int {
			a, b, c, d := uint64(1), uint64(2), uint64(3), uint64(4)
			for range 50_000 { // four chains, none waits for another
				a, b, c, d = a^a<<13, b^b<<13, c^c<<13, d^d<<13
				a, b, c, d = a^a>>7, b^b>>7, c^c>>7, d^d>>7
				a, b, c, d = a^a<<17, b^b<<17, c^c<<17, d^d<<17
			}
			sink.Store(a ^ b ^ c ^ d)
			return 1
		}
	}
	encoding, loop := [2]func() int{mixed(tok), mixed(tok)}, [2]func() int{alone(), alone()}
	apart := []func() int{encoding[0], mixed(load(name))}
	var one, two, own, loopOne, loopTwo []float64
	for range 100 {
		one, two = append(one, throughput(encoding[:1])), append(two, throughput(encoding[:]))
		own = append(own, throughput(apart))
		loopOne, loopTwo = append(loopOne, throughput(loop[:1])), append(loopTwo, throughput(loop[:]))
	}
	print(result{Bench: "two-cores/" + name, Ratio: quantile(two, 0.95) / quantile(one, 0.95), Floor: quantile(loopTwo, 0.95) / quantile(loopOne, 0.95),
		Note: fmt.Sprintf("tokens a second of two goroutines against one, by the clock, the best of 100 rounds of 25 ms; floor: a loop that shares nothing; a tokenizer each: %.2f; medians: %.2f, a tokenizer each %.2f, floor %.2f",
			quantile(own, 0.95)/quantile(one, 0.95), quantile(two, 0.5)/quantile(one, 0.5), quantile(own, 0.5)/quantile(one, 0.5), quantile(loopTwo, 0.5)/quantile(loopOne, 0.5))})
}

var sink atomic.Uint64

// throughput runs each of work on a processor of its own, over and over for
// 25 ms, and returns what is done in a second. Work returns how much it did.
// All begin at the same moment, 5 ms before they are timed: by then caches
// hold what the processor works on.
func throughput(work []func() int) float64 {
	rates := make([]float64, len(work))
	var ready atomic.Int32
	var wg sync.WaitGroup
	for i, f := range work {
		wg.Go(func() {
			runtime.LockOSThread() // until it ends, and the thread with it
			cputime.Pin(i)
			ready.Add(1)
			for int(ready.Load()) < len(work) {
				runtime.Gosched()
			}
			for start := time.Now(); time.Since(start) < 5*time.Millisecond; {
				f()
			}
			start, done := time.Now(), 0
			for time.Since(start) < 25*time.Millisecond {
				done += f()
			}
			rates[i] = float64(done) / time.Since(start).Seconds()
		})
	}
	wg.Wait()
	sum := 0.0
	for _, r := range rates {
		sum += r
	}
	return sum
}

func quantile(list []float64, q float64) float64 {
	slices.Sort(list)
	return list[int(q*float64(len(list)))]
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

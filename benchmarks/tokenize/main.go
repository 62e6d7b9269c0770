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

// twoCores compares the work done by one goroutine and by two, on prompts of
// mixed lengths, in rounds that alternate with a loop that shares nothing and
// fits into registers, for about as long: what that loses is the machine's. A ratio is of the
// time by the clock, times two; its note has the same by CPU time, which
// shows what is lost to locks and shared memory whatever else runs.
func twoCores(name string, tok *tokenize.Tokenizer, text string) {
	if runtime.GOMAXPROCS(0) < 2 {
		return
	}
	mixed := func() func() {
		dst := make([]uint32, 0, len(text))
		return func() {
			for i := range 1600 {
				at := i * 997 % (len(text) / 2)
				dst = encode(tok, dst, text[at:at+1+i*i%20_000])
			}
		}
	}
	alone := func() func() {
		return func() {
			x := uint64(1)
			for range 120_000_000 {
				x ^= x << 13
				x ^= x >> 7
				x ^= x << 17
			}
			sink.Store(x)
		}
	}
	var clock, loop, byCPU []float64
	for range 9 {
		c, u := twice(mixed)
		clock, byCPU = append(clock, c), append(byCPU, u)
		c, _ = twice(alone)
		loop = append(loop, c)
	}
	print(result{Bench: "two-cores/" + name, Ratio: median(clock), Floor: median(loop),
		Note: fmt.Sprintf("work of two goroutines against one, by the clock; floor: a loop that shares nothing; by CPU time %.2f", median(byCPU))})
}

var sink atomic.Uint64

// twice runs work in one goroutine and then in two, and returns how many
// times as much two do, by the clock and by CPU time.
func twice(work func() func()) (clock, byCPU float64) {
	run := func(f func()) time.Duration {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		return cpu(f)
	}
	first, second := work(), work()
	start := time.Now()
	one := run(first)
	wallOne := time.Since(start)
	var both [2]time.Duration
	var wg sync.WaitGroup
	start = time.Now()
	wg.Go(func() { both[0] = run(first) })
	wg.Go(func() { both[1] = run(second) })
	wg.Wait()
	return 2 * float64(wallOne) / float64(time.Since(start)), 2 * 2 * float64(one) / float64(both[0]+both[1])
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
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

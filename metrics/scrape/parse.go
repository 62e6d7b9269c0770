package scrape

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unsafe"

	"github.com/kvatlas/kvatlas/scoring"
)

// Page is what one engine's /metrics said. The zero value is ready; it belongs to
// the caller, who should reuse it.
type Page struct {
	// Ranks are in the order in which the page names them first.
	Ranks []Rank
	// Unreadable counts lines of wanted metrics that could not be read, or whose value
	// the metric cannot have: negative or not a number, a fraction above 1.
	Unreadable int

	seen nameSet          // names that were read
	told [numFields]uint8 // one more than the place of the name that tells a field
}

// Limits of a page: an engine's own is below 100 KiB.
const (
	// MaxPage is the longest page that is read.
	MaxPage = 16 << 20
	// MaxRanks bounds the ranks of a page; samples of others are Unreadable.
	MaxRanks = 1024
)

// Parse reads a page in the Prometheus text format, in OpenMetrics or, from older
// releases of TensorRT-LLM, in JSON into p. What an engine says of one rank under
// several labels is added up, except use of the cache and hit rates, of which
// the largest is kept, and what SGLang's processes of one data-parallel rank each
// say of the same requests. A line that cannot be read costs itself only. The page
// is not kept. It does not allocate once p has held as many ranks, unless it is
// JSON.
//
// Use of the cache and hit rates are fractions, of blocks or tokens that the engine
// counts: what is above 1 is no such fraction and is not read, however little it is above.
//
// The error says that the page is too long or bad JSON, names no metric of a known
// engine ([ErrNoMetrics]), or names some of which none can be read ([ErrUnreadable]).
// For a nil p it is [ErrNil].
func Parse(p *Page, page []byte) error {
	if p == nil {
		return ErrNil
	}
	p.empty()
	if len(page) > MaxPage {
		return fmt.Errorf("scrape: page of %d bytes, want at most %d", len(page), MaxPage)
	}
	if len(page) > 0 && page[0] == '[' {
		return p.json(page)
	}
	for len(page) > 0 {
		line := page
		if i := bytes.IndexByte(page, '\n'); i >= 0 {
			line, page = page[:i], page[i+1:]
		} else {
			page = nil
		}
		if at, rest, ok := wanted(line); ok && !p.sample(at, rest) {
			p.Unreadable++
		}
	}
	return p.nothing()
}

// empty forgets what was read, and keeps its memory.
func (p *Page) empty() {
	p.Ranks, p.Unreadable, p.seen, p.told = p.Ranks[:0], 0, 0, [numFields]uint8{}
}

// nothing says what is wrong with a page of which nothing was read.
func (p *Page) nothing() error {
	switch {
	case len(p.Ranks) > 0:
		return nil
	case p.Unreadable > 0:
		return ErrUnreadable
	}
	return ErrNoMetrics
}

type constError string

func (e constError) Error() string { return string(e) }

const (
	// ErrNoMetrics is returned for a page without any metric of vLLM, SGLang or
	// TensorRT-LLM that is known here.
	ErrNoMetrics = constError("scrape: no metric of a known engine on the page (vllm:, sglang:, trtllm_)")
	// ErrUnreadable is returned for a page that has such metrics, of which none could be
	// read: Page.Unreadable counts them.
	ErrUnreadable = constError("scrape: no metric on the page could be read; want numbers from 0 on, and at most 1 for a fraction")
	// ErrNil is returned by [Parse] where there is no page to read into.
	ErrNil = constError("scrape: nil *Page")
)

// wanted tells which of the names a line is about, and returns what follows it.
// Most lines are turned away by two of their bytes.
func wanted(line []byte) (at uint8, rest []byte, ok bool) {
	if len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
		line = bytes.TrimLeft(line, " \t")
	}
	if len(line) < 16 {
		return 0, nil, false // shorter than any name
	}
	p := 0
	switch line[0] {
	case 'v':
		p = 0
	case 's':
		p = 1
	case 't':
		p = 2
	case 'n':
		p = 3
	default:
		return 0, nil, false
	}
	prefix := prefixes[p]
	for _, s := range suffixes[p][line[len(prefix)]] {
		end := len(prefix) + len(s.text)
		if end >= len(line) || string(line[len(prefix):end]) != s.text {
			continue
		}
		if c := line[end]; c != '{' && c != ' ' && c != '\t' {
			continue
		}
		colon := len(prefix) - 1
		ok = string(line[:colon]) == prefix[:colon] && (line[colon] == prefix[colon] || line[colon] == '_')
		return s.at, line[end:], ok
	}
	return 0, nil, false
}

// attributes are the labels of a sample that are of interest.
type attributes struct {
	Rank
	priority bool   // SGLang: of requests of one priority, which the total includes
	kind     []byte // Triton: of requests or of blocks
}

// sample reads labels and value of a wanted line.
func (p *Page) sample(at uint8, rest []byte) bool {
	var a attributes
	f := names[at].field
	rest = bytes.TrimLeft(rest, " \t")
	if len(rest) > 0 && rest[0] == '{' {
		var ok bool
		if rest, ok = labels(rest[1:], &a); !ok {
			return false
		}
	}
	value, ok := number(rest)
	if !ok {
		return false
	}
	switch f {
	case tritonRequests, tritonBlocks:
		if f, ok = triton(f, a.kind); !ok {
			return true
		}
	case cacheConfig, loraInfo:
	default:
		if !possible(f, value) {
			return false
		}
	}
	sglang := names[at].name[0] == 's'
	if sglang && a.priority {
		return true
	}
	if told := &p.told[f]; *told == 0 {
		*told = at + 1
	} else if *told != at+1 {
		return true // by another name
	}
	r := p.rank(a.Rank.Rank)
	if r == nil {
		return false
	}
	p.seen |= 1 << at
	switch f {
	case cacheConfig:
		r.BlockSize, r.Blocks = max(r.BlockSize, a.BlockSize), max(r.Blocks, a.Blocks)
	case loraInfo:
		r.MaxLoRA = max(r.MaxLoRA, a.MaxLoRA)
	case blockSize:
		r.BlockSize = max(r.BlockSize, whole(value))
	case blocks:
		r.Blocks = max(r.Blocks, whole(value))
	default:
		switch g := r.gauge(f); {
		case !g.Known:
			*g = scoring.Known(value)
		case f == usage || f == hitRate || sglang:
			// Tensor- and pipeline-parallel processes of SGLang tell of the same requests.
			g.Value = max(g.Value, value)
		default:
			g.Value += value
		}
	}
	return true
}

// possible tells whether a field may have a value.
func possible(f field, v float64) bool {
	if f == usage || f == hitRate {
		return v >= 0 && v <= 1
	}
	return v >= 0 && v <= math.MaxFloat64
}

// whole is a value as a number of things, 0 if it is none.
func whole(v float64) int {
	if v > math.MaxInt32 {
		return 0
	}
	return int(v)
}

// triton tells which field a sample of the Triton backend is about.
func triton(f field, kind []byte) (field, bool) {
	switch string(kind) {
	case "scheduled":
		return running, f == tritonRequests
	case "waiting":
		return waiting, f == tritonRequests
	case "fraction":
		return usage, f == tritonBlocks
	case "tokens_per":
		return blockSize, f == tritonBlocks
	case "max":
		return blocks, f == tritonBlocks
	}
	return 0, false
}

func (p *Page) rank(n int) *Rank {
	for i := range p.Ranks {
		if p.Ranks[i].Rank == n {
			return &p.Ranks[i]
		}
	}
	if len(p.Ranks) == MaxRanks {
		return nil
	}
	p.Ranks = append(p.Ranks, Rank{Rank: n})
	return &p.Ranks[len(p.Ranks)-1]
}

// labels reads what stands between the braces and returns what follows them.
func labels(s []byte, a *attributes) (rest []byte, ok bool) {
	for {
		for len(s) > 0 && (s[0] == ',' || s[0] == ' ' || s[0] == '\t') {
			s = s[1:]
		}
		if len(s) > 0 && s[0] == '}' {
			return s[1:], true
		}
		eq := bytes.IndexByte(s, '=')
		if eq < 0 || len(s) < eq+2 || s[eq+1] != '"' {
			return nil, false
		}
		name := bytes.TrimRight(s[:eq], " \t")
		s = s[eq+2:]
		end := 0
		for end < len(s) && s[end] != '"' {
			if s[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(s) {
			return nil, false
		}
		if !label(name, s[:end], a) {
			return nil, false
		}
		s = s[end+1:]
	}
}

// label notes the labels that are of interest. The values of interest have no
// escapes.
func label(name, value []byte, a *attributes) bool {
	var to *int
	switch string(name) {
	case "engine", "dp_rank":
		n, err := strconv.ParseUint(unsafeString(value), 10, 31)
		a.Rank.Rank = int(n)
		return err == nil
	case "priority":
		a.priority = len(value) > 0
	case "request_type", "kv_cache_block_type":
		a.kind = value
	case "block_size":
		to = &a.BlockSize
	case "num_gpu_blocks":
		to = &a.Blocks
	case "max_lora":
		to = &a.MaxLoRA
	}
	if to != nil {
		if n, err := strconv.ParseUint(unsafeString(value), 10, 31); err == nil {
			*to = int(n) // "None" stays unknown
		}
	}
	return true
}

// number reads the value; a timestamp or an exemplar may follow.
func number(s []byte) (float64, bool) {
	s = bytes.TrimLeft(s, " \t")
	if i := bytes.IndexAny(s, " \t\r"); i >= 0 {
		s = s[:i]
	}
	v, err := strconv.ParseFloat(unsafeString(s), 64)
	return v, err == nil
}

// unsafeString is the text of b for a call that does not keep it.
func unsafeString(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(&b[0], len(b))
}

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
	// Unreadable counts lines of wanted metrics that could not be read.
	Unreadable int
}

// Limits of a page: an engine's own is below 100 KiB.
const (
	// MaxPage is the longest page that is read.
	MaxPage = 16 << 20
	// MaxRanks bounds the ranks of a page; samples of others are Unreadable.
	MaxRanks = 1024
)

// Parse reads a page in the Prometheus text format or in OpenMetrics into p. Samples
// of one rank under several models or other labels are added up, use of the
// cache excepted, of which the largest is kept. A line that cannot be read
// costs itself only. The page is not kept. It does not allocate once p has held as
// many ranks.
//
// The error says that the page is too long or names no metric of a known engine.
func Parse(p *Page, page []byte) error {
	p.Ranks, p.Unreadable = p.Ranks[:0], 0
	if len(page) > MaxPage {
		return fmt.Errorf("scrape: page of %d bytes, want at most %d", len(page), MaxPage)
	}
	for len(page) > 0 {
		var line []byte
		if i := bytes.IndexByte(page, '\n'); i >= 0 {
			line, page = page[:i], page[i+1:]
		} else {
			line, page = page, nil
		}
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if f, rest, ok := wanted(line); ok && !p.sample(f, rest) {
			p.Unreadable++
		}
	}
	if len(p.Ranks) == 0 {
		return ErrNoMetrics
	}
	return nil
}

type constError string

func (e constError) Error() string { return string(e) }

// ErrNoMetrics is returned for a page without any metric of vLLM, SGLang or
// TensorRT-LLM that is known here.
const ErrNoMetrics = constError("scrape: no metric of a known engine on the page (vllm:, sglang:, trtllm_)")

// wanted tells which field a line is about, and returns what follows its name.
func wanted(line []byte) (f field, rest []byte, ok bool) {
	line = bytes.TrimLeft(line, " \t")
	// Every wanted name begins so; most lines end here.
	if len(line) < 8 || line[0] != 'v' && line[0] != 's' && line[0] != 't' {
		return 0, nil, false
	}
	i := bytes.IndexAny(line, "{ \t")
	if i < 0 {
		return 0, nil, false
	}
	f, ok = names[unsafeString(line[:i])] // not kept
	return f, line[i:], ok
}

// sample reads labels and value of a wanted line.
func (p *Page) sample(f field, rest []byte) bool {
	var info Rank
	rest = bytes.TrimLeft(rest, " \t")
	if len(rest) > 0 && rest[0] == '{' {
		var ok bool
		if rest, ok = labels(rest[1:], &info); !ok {
			return false
		}
	}
	value, ok := number(rest)
	if !ok {
		return false
	}
	r := p.rank(info.Rank)
	if r == nil {
		return false
	}
	switch f {
	case cacheConfig:
		r.BlockSize, r.Blocks = max(r.BlockSize, info.BlockSize), max(r.Blocks, info.Blocks)
	case loraInfo:
		r.MaxLoRA = max(r.MaxLoRA, info.MaxLoRA)
	default:
		g := r.gauge(f)
		switch {
		case math.IsNaN(value) || math.IsInf(value, 0) || value < 0:
			return false
		case !g.Known:
			*g = scoring.Known(value)
		case f == usage || f == hitRate:
			g.Value = max(g.Value, value)
		default:
			g.Value += value
		}
	}
	return true
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
func labels(s []byte, info *Rank) (rest []byte, ok bool) {
	for {
		s = bytes.TrimLeft(s, " \t,")
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
		if !label(name, s[:end], info) {
			return nil, false
		}
		s = s[end+1:]
	}
}

// label notes the labels that are of interest. The values of interest have no
// escapes.
func label(name, value []byte, info *Rank) bool {
	for _, l := range rankLabels {
		if string(name) == l {
			n, err := strconv.ParseUint(unsafeString(value), 10, 31)
			if err != nil {
				return false
			}
			info.Rank = int(n)
			return true
		}
	}
	var to *int
	switch string(name) {
	case "block_size":
		to = &info.BlockSize
	case "num_gpu_blocks":
		to = &info.Blocks
	case "max_lora":
		to = &info.MaxLoRA
	default:
		return true
	}
	if n, err := strconv.ParseUint(unsafeString(value), 10, 31); err == nil {
		*to = int(n) // "None" stays unknown
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

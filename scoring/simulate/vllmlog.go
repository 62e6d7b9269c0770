package simulate

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
)

var (
	logTime     = regexp.MustCompile(`\b(\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\b`)
	logDetails  = regexp.MustCompile(`\bRequest (\S+) details: `)
	logReceived = regexp.MustCompile(`\bReceived request (\S+): `)
	logAnswer   = regexp.MustCompile(`\bGenerated response (\S+?)( \(streaming (?:delta|complete)\))?(?: details)?: `)
	logTokens   = regexp.MustCompile(`\bprompt_token_ids: \[([0-9, ]*)\]`)
	logOutput   = regexp.MustCompile(`\boutput_token_ids: [\[(]([0-9, ]*)[\])]`)
	logMax      = regexp.MustCompile(`\bmax_tokens=(\d+)`)
)

const (
	maxLogLine    = 1 << 24 // prompts of two million tokens fit
	unknownOutput = 256
)

// ConvertVLLMLog reads a server log of vLLM and returns the requests as a trace,
// with blocks of blockSize tokens. The server must log requests in full:
// --enable-log-requests, --max-log-len unset, and from 0.11 on
// VLLM_LOGGING_LEVEL=DEBUG, since prompts are in debug lines there ("Request ID
// details: ..." before "Received request ID: ..."; before, one line had both).
//
// The length of an answer is that of the output_token_ids logged for it
// (--enable-log-outputs); where there are none max_tokens stands for it, and 256
// where that is None. Other lines are skipped. The log has no year, so it must not
// run over New Year.
//
// Source: vllm/entrypoints/logger.py (0.10), later
// vllm/entrypoints/serve/utils/request_logger.py (0.32).
func ConvertVLLMLog(r io.Reader, blockSize int) (*Trace, error) {
	if blockSize < 1 {
		return nil, fmt.Errorf("simulate: block size is %d; at least 1 is needed", blockSize)
	}
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLogLine)
	l := vllmLog{trace: &Trace{BlockSize: blockSize}, requests: map[string]*loggedRequest{}}
	for n := 1; in.Scan(); n++ {
		if err := l.line(in.Text()); err != nil {
			return nil, fmt.Errorf("simulate: log line %d: %w", n, err)
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("simulate: log: %w", err)
	}
	t := l.trace
	if len(t.Arrivals) == 0 {
		return nil, fmt.Errorf("simulate: the log has %d lines with \"Received request\", none of them with prompt_token_ids; "+
			"start vLLM with --enable-log-requests and VLLM_LOGGING_LEVEL=DEBUG", l.received)
	}
	slices.SortStableFunc(t.Arrivals, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	first := t.Arrivals[0].At
	for i := range t.Arrivals {
		t.Arrivals[i].At -= first
	}
	return t, t.validate()
}

// vllmLog is a log that is being read.
type vllmLog struct {
	trace    *Trace
	requests map[string]*loggedRequest // the latest with an id
	received int
}

type loggedRequest struct {
	index    int // in the trace
	answered int // output tokens logged
}

// line takes what a line says. The prompt's text, which may contain anything,
// comes before what is looked for, so the last occurrence counts.
func (l *vllmLog) line(line string) error {
	if m := logAnswer.FindStringSubmatch(line); m != nil {
		return l.answer(m[1], strings.Contains(m[2], "delta"), last(logOutput, line))
	}
	m, received := logDetails.FindStringSubmatch(line), false
	if m == nil {
		if m = logReceived.FindStringSubmatch(line); m == nil {
			return nil
		}
		received = true
		l.received++
	}
	if tokens := last(logTokens, line); strings.TrimSpace(tokens) != "" {
		if err := l.prompt(m[1], line, tokens); err != nil {
			return err
		}
	}
	if q := l.requests[m[1]]; received && q != nil && q.answered == 0 {
		if v, err := strconv.Atoi(last(logMax, line)); err == nil {
			l.trace.Arrivals[q.index].Output = max(1, v)
		}
	}
	return nil
}

func (l *vllmLog) prompt(id, line, tokens string) error {
	stamp := logTime.FindString(line)
	if stamp == "" {
		return nil
	}
	at, err := time.Parse("01-02 15:04:05", stamp) // a fraction is accepted
	if err != nil {
		return err
	}
	a := Arrival{At: float64(at.UnixMicro()) / 1e6, Output: unknownOutput}
	if a.Tokens, a.Blocks, err = blockKeys(tokens, l.trace.BlockSize); err != nil {
		return err
	}
	l.requests[id] = &loggedRequest{index: len(l.trace.Arrivals)}
	l.trace.Arrivals = append(l.trace.Arrivals, a)
	return nil
}

// answer counts the tokens of an answer or, in a stream, of a part of it.
func (l *vllmLog) answer(id string, delta bool, tokens string) error {
	q := l.requests[id]
	if q == nil || strings.TrimSpace(tokens) == "" {
		return nil
	}
	n := strings.Count(strings.TrimSuffix(strings.TrimSpace(tokens), ","), ",") + 1
	if delta {
		n += q.answered
	}
	q.answered = n
	l.trace.Arrivals[q.index].Output = n
	return nil
}

// last returns what the expression's group matched last, "" for nothing.
func last(re *regexp.Regexp, line string) string {
	all := re.FindAllStringSubmatch(line, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1][1]
}

// blockKeys parses a list of token ids and names its blocks.
func blockKeys(list string, size int) (tokens int, keys []uint64, err error) {
	parent, buf := uint64(0), make([]byte, 0, 4*size)
	for s := range strings.SplitSeq(list, ",") {
		id, err := strconv.ParseUint(strings.TrimSpace(s), 10, 32)
		if err != nil {
			return 0, nil, err
		}
		buf = binary.LittleEndian.AppendUint32(buf, uint32(id))
		if tokens++; tokens%size == 0 {
			parent = xxh3.HashSeed(buf, parent)
			// 53 bits survive readers that take numbers for floats.
			keys = append(keys, parent>>11)
			buf = buf[:0]
		}
	}
	return tokens, keys, nil
}

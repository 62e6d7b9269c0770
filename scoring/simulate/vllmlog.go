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
	logTime   = regexp.MustCompile(`\b(\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\b`)
	logTokens = regexp.MustCompile(`prompt_token_ids: \[([0-9, ]*)\]`)
	logMax    = regexp.MustCompile(`\bmax_tokens=(\d+)`)
)

// maxLogLine bounds a line of a log: prompts of two million tokens fit.
const maxLogLine = 1 << 24

// ConvertVLLMLog reads a server log of vLLM with requests logged in full
// (--enable-log-requests, and --max-log-len unset) and returns the requests as a
// trace, with blocks of blockSize tokens. Lines without "Received request" and
// prompt_token_ids are skipped. The log has no answer lengths, so max_tokens
// stands for them, or 256 where it is None; and it has no year, so a log must not
// run over New Year.
func ConvertVLLMLog(r io.Reader, blockSize int) (*Trace, error) {
	if blockSize < 1 {
		return nil, fmt.Errorf("simulate: block size is %d; at least 1 is needed", blockSize)
	}
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLogLine)
	t := &Trace{BlockSize: blockSize}
	for n := 1; in.Scan(); n++ {
		line := in.Text()
		if !strings.Contains(line, "Received request") {
			continue
		}
		tokens := logTokens.FindStringSubmatch(line)
		stamp := logTime.FindStringSubmatch(line)
		if tokens == nil || strings.TrimSpace(tokens[1]) == "" || stamp == nil {
			continue
		}
		at, err := time.Parse("01-02 15:04:05", stamp[1]) // a fraction is accepted
		if err != nil {
			return nil, fmt.Errorf("simulate: log line %d: %w", n, err)
		}
		a := Arrival{At: float64(at.UnixMicro()) / 1e6, Output: 256}
		if m := logMax.FindStringSubmatch(line); m != nil {
			if v, err := strconv.Atoi(m[1]); err == nil {
				a.Output = max(1, v)
			}
		}
		if a.Tokens, a.Blocks, err = blockKeys(tokens[1], blockSize); err != nil {
			return nil, fmt.Errorf("simulate: log line %d: %w", n, err)
		}
		t.Arrivals = append(t.Arrivals, a)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("simulate: log: %w", err)
	}
	if len(t.Arrivals) == 0 {
		return nil, fmt.Errorf("simulate: the log has no line with \"Received request\" and prompt_token_ids; start vLLM with --enable-log-requests")
	}
	slices.SortStableFunc(t.Arrivals, func(a, b Arrival) int { return cmp.Compare(a.At, b.At) })
	first := t.Arrivals[0].At
	for i := range t.Arrivals {
		t.Arrivals[i].At -= first
	}
	return t, t.validate()
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

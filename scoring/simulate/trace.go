package simulate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// record is a line of a trace file.
type record struct {
	Timestamp    float64  `json:"timestamp"`
	InputLength  int      `json:"input_length"`
	OutputLength int      `json:"output_length"`
	HashIDs      []uint64 `json:"hash_ids"`
	Session      string   `json:"session,omitempty"`
}

// maxLine bounds a line of a trace: 100,000 blocks fit.
const maxLine = 1 << 21

// ReadTrace reads JSON lines in the form of the Mooncake traces: timestamp in
// milliseconds, input_length and output_length in tokens, hash_ids with one
// number for each block of blockSize tokens of the prompt (the last may be
// partial; Mooncake's blocks have 512), and optionally session. Equal numbers are
// equal content with an equal beginning. Requests must be in order of time. At
// most limit requests are read; 0 reads all.
//
// Where there is no session, the second block of the prompt stands for it, since
// the first is often everybody's.
func ReadTrace(r io.Reader, blockSize, limit int) (*Trace, error) {
	if blockSize < 1 {
		return nil, fmt.Errorf("simulate: block size is %d; at least 1 is needed", blockSize)
	}
	t := &Trace{BlockSize: blockSize}
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	for line := 1; in.Scan(); line++ {
		if len(in.Bytes()) == 0 {
			continue
		}
		var rec record
		if err := json.Unmarshal(in.Bytes(), &rec); err != nil {
			return nil, fmt.Errorf("simulate: trace line %d: %w", line, err)
		}
		a := Arrival{At: rec.Timestamp / 1000, Tokens: rec.InputLength, Output: max(1, rec.OutputLength), Session: rec.Session}
		if a.Tokens < 1 {
			return nil, fmt.Errorf("simulate: trace line %d: input_length is %d; at least 1 is needed", line, a.Tokens)
		}
		a.Blocks = rec.HashIDs[:min(len(rec.HashIDs), a.Tokens/blockSize)]
		if a.Session == "" && len(rec.HashIDs) > 1 {
			a.Session = fmt.Sprintf("block-%d", rec.HashIDs[1])
		}
		t.Arrivals = append(t.Arrivals, a)
		if len(t.Arrivals) == limit {
			break
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("simulate: trace: %w", err)
	}
	return t, t.validate()
}

// WriteTrace writes a trace in the form that [ReadTrace] reads.
func WriteTrace(w io.Writer, t *Trace) error {
	out := bufio.NewWriter(w)
	e := json.NewEncoder(out)
	for i := range t.Arrivals {
		a := &t.Arrivals[i]
		if err := e.Encode(record{a.At * 1000, a.Tokens, a.Output, a.Blocks, a.Session}); err != nil {
			return err
		}
	}
	return out.Flush()
}

package recording

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// maxLine bounds one line of a recording; the longest known is 4 MiB.
const maxLine = 256 << 20

// Lines calls f with every line of r that is not blank, numbered from 1, and
// stops at the first error, which it returns with the line's number.
func Lines(r io.Reader, f func(n int, line []byte) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), maxLine)
	n := 0
	for s.Scan() {
		n++
		line := bytes.TrimSpace(s.Bytes())
		if len(line) == 0 {
			continue
		}
		if err := f(n, line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("line %d: %w", n+1, err)
	}
	return nil
}

// decode fills v from one line. Unknown fields are allowed: recorders add
// notes of their own.
func decode(line []byte, v any) error {
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("not a record of this format: %w", err)
	}
	return nil
}

package conform

import (
	"bytes"
	"encoding/json"
	"io"
)

func reader(file []byte) io.Reader { return bytes.NewReader(file) }

// isTrace tells a truth trace, whose first line is a header without "op", from
// a recorded session.
func isTrace(file []byte) bool {
	first, _, _ := bytes.Cut(file, []byte("\n"))
	var h struct {
		Op     string            `json:"op"`
		Groups []json.RawMessage `json:"groups"`
	}
	return json.Unmarshal(first, &h) == nil && h.Op == "" && h.Groups != nil
}

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

// engineOf reads the engine's name from a header.
func engineOf(file []byte) string {
	first, _, _ := bytes.Cut(file, []byte("\n"))
	var h struct {
		Engine  string `json:"engine"`
		LMCache string `json:"lmcache"`
	}
	_ = json.Unmarshal(first, &h) // no header, no engine: the reader of the format says so
	if h.Engine == "" && h.LMCache != "" {
		return "lmcache"
	}
	return h.Engine
}

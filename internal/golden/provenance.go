package golden

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Provenance is one line of testdata/PROVENANCE: where a file comes from.
type Provenance struct {
	File      string  `json:"file"`             // logical name
	Engine    string  `json:"engine"`           // whose answers these are
	Version   string  `json:"version"`          // its release
	Generator string  `json:"generator"`        // what wrote the file; a logical name where it was kept
	Command   string  `json:"command"`          // how it was run
	Date      *string `json:"date"`             // YYYY-MM-DD, nil where the maker did not note it
	Edits     string  `json:"edits,omitempty"`  // what was changed afterwards
	Beside    string  `json:"beside,omitempty"` // another engine it ran in
	SHA256    string  `json:"sha256"`           // hex, of the uncompressed content
	Size      int     `json:"size"`             // uncompressed bytes
}

// Check returns an error unless content is what the line says.
func (p *Provenance) Check(content []byte) error {
	want := Provenance{SHA256: p.SHA256, Size: p.Size}
	got := Provenance{}
	got.Sum(content)
	if got != want {
		return fmt.Errorf("golden: %s: %d bytes with sum %s, PROVENANCE says %d and %s",
			p.File, got.Size, got.SHA256, want.Size, want.SHA256)
	}
	return nil
}

// Sum sets the fields that follow from content.
func (p *Provenance) Sum(content []byte) {
	sum := sha256.Sum256(content)
	p.SHA256, p.Size = hex.EncodeToString(sum[:]), len(content)
}

// ParseProvenance reads the content of the file.
func ParseProvenance(content []byte) ([]Provenance, error) {
	var lines []Provenance
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	for d.More() {
		var p Provenance
		if err := d.Decode(&p); err != nil {
			return nil, fmt.Errorf("golden: PROVENANCE after %d lines: %w", len(lines), err)
		}
		lines = append(lines, p)
	}
	return lines, nil
}

// FormatProvenance gives the content of the file: one line each, sorted.
func FormatProvenance(lines []Provenance) ([]byte, error) {
	lines = slices.SortedFunc(slices.Values(lines), func(a, b Provenance) int {
		return strings.Compare(a.File, b.File)
	})
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i := range lines {
		if err := e.Encode(&lines[i]); err != nil {
			return nil, fmt.Errorf("golden: %w", err)
		}
	}
	return b.Bytes(), nil
}

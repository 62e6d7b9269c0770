package conformance

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/recorded"
	"github.com/kvatlas/kvatlas/internal/recording"
)

// maxTokens bounds what a formula may ask for.
const maxTokens = 1 << 22

// Read reads vectors: one or more files of the format of testdata/vllm/hash,
// decompressed, one after the other. Each case gives one vector per algorithm
// for which the engine answered. A line that cannot be read gives an error
// with its number.
func Read(r io.Reader) ([]Vector, error) {
	var list []Vector
	head := &recording.HashFile{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		var line struct {
			Header bool `json:"header"`
		}
		err := json.Unmarshal(lines.Bytes(), &line)
		switch {
		case err != nil:
		case line.Header:
			head, err = recording.ParseHashHeader(lines.Bytes())
		default:
			list, err = appendCase(list, head, lines.Bytes())
		}
		if err != nil {
			return nil, fmt.Errorf("conformance: line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
	}
	return list, nil
}

func appendCase(list []Vector, head *recording.HashFile, data []byte) ([]Vector, error) {
	c, err := recording.ParseHashCase(data, maxTokens)
	if err != nil {
		return nil, err
	}
	prompt := *recorded.Prompt(&c)
	for _, a := range []blockhash.Algorithm{blockhash.SHA256, blockhash.SHA256CBOR, blockhash.XXHash, blockhash.XXHashCBOR} {
		r, ok := c.Results[a.String()]
		if !ok || r.Error != "" {
			continue
		}
		v := Vector{Engine: head.Engine, Version: head.Version, Name: c.Name, Seed: head.Seed, Algorithm: a,
			Root: head.NoneHash[a.String()], BlockSize: c.BlockSize, Lookahead: c.Lookahead,
			SharedObjects: c.SharedObjects, Prompt: prompt}
		v.RandomRoot = v.rootIsRandom()
		for _, h := range r.Hashes {
			digest, err := hex.DecodeString(h)
			if err != nil {
				return nil, err
			}
			v.Digests = append(v.Digests, digest)
		}
		for _, w := range r.Wire {
			key, err := strconv.ParseUint(w, 10, 64)
			if err != nil {
				return nil, err
			}
			v.Keys = append(v.Keys, key)
		}
		list = append(list, v)
	}
	return list, nil
}

// rootIsRandom asks the library whether the root can be known.
func (v *Vector) rootIsRandom() bool {
	_, err := v.Hasher()
	return errors.Is(err, blockhash.ErrRoot)
}

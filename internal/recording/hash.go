package recording

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// HashFile is a file of block hashes as one engine release computed them.
type HashFile struct {
	Engine, Version string
	// Seed is PYTHONHASHSEED, nil when it was unset.
	Seed *string
	// NoneHash is the root by algorithm, as the process had it.
	NoneHash map[string][]byte
	Cases    []HashCase
}

// HashCase is one prompt and the hashes of its blocks, by algorithm.
type HashCase struct {
	Name          string
	BlockSize     int
	Tokens        []int64
	LoRA          *LoRA
	CacheSalt     string
	Items         []Item
	Embeds        []byte
	EmbedsPerTok  int
	Lookahead     int
	SharedObjects bool
	// ExtraKeys is what went into each block's hash beside parent and tokens,
	// for people to read.
	ExtraKeys json.RawMessage
	Results   map[string]HashResult
}

// LoRA is an adapter as the engine knew it.
type LoRA struct {
	Name string `json:"name"`
	ID   int64  `json:"id"`
	Path string `json:"path"`
}

// Item is a multimodal item of a prompt.
type Item struct {
	Identifier string `json:"identifier"`
	Offset     int    `json:"offset"`
	Length     int    `json:"length"`
}

// HashResult is the engine's answer under one algorithm: digests and their
// form on the wire, or the error with which it refused.
type HashResult struct {
	Hashes []string `json:"hashes"`
	Wire   []string `json:"wire"`
	Error  string   `json:"error"`
}

type hashHeader struct {
	Header   bool              `json:"header"`
	Engine   string            `json:"engine"`
	Version  string            `json:"version"`
	Seed     *string           `json:"python_hash_seed"`
	NoneHash map[string]string `json:"none_hash"`
}

type hashLine struct {
	Header        bool    `json:"header"`
	Name          string  `json:"name"`
	BlockSize     int     `json:"block_size"`
	Tokens        []int64 `json:"tokens"`
	TokensFormula *struct {
		N int   `json:"n"`
		A int64 `json:"a"`
		B int64 `json:"b"`
		M int64 `json:"m"`
	} `json:"tokens_formula"`
	LoRA      *LoRA  `json:"lora"`
	CacheSalt string `json:"cache_salt"`
	// SaltRepeat is [text, times].
	SaltRepeat []json.RawMessage `json:"cache_salt_repeat"`
	Items      []Item            `json:"mm"`
	Embeds     *struct {
		DType string `json:"dtype"`
		Shape []int  `json:"shape"`
		Data  string `json:"data_b64"`
	} `json:"prompt_embeds"`
	Lookahead     int                   `json:"lookahead"`
	SharedObjects bool                  `json:"shared_objects"`
	ExtraKeys     json.RawMessage       `json:"extra_keys"`
	Results       map[string]HashResult `json:"results"`
}

// maxFormulaTokens bounds a prompt that a file describes by formula.
const maxFormulaTokens = 64 << 20

// ReadHash reads a whole file of block hashes.
func ReadHash(r io.Reader) (*HashFile, error) {
	var f *HashFile
	err := Lines(r, func(_ int, line []byte) error {
		if f == nil {
			var err error
			f, err = ParseHashHeader(line)
			return err
		}
		c, err := ParseHashCase(line, maxFormulaTokens)
		if err != nil {
			return err
		}
		f.Cases = append(f.Cases, c)
		return nil
	})
	if err == nil && f == nil {
		err = errors.New("empty file: want a header line")
	}
	if err != nil {
		return nil, fmt.Errorf("recording: hash file: %w", err)
	}
	return f, nil
}

// ParseHashHeader reads the first line of a file of block hashes: a file without cases yet.
func ParseHashHeader(line []byte) (*HashFile, error) {
	var h hashHeader
	if err := decode(line, &h); err != nil {
		return nil, err
	}
	if !h.Header || h.Engine == "" || h.Version == "" {
		return nil, errors.New(`want a header with "header": true, "engine" and "version"`)
	}
	f := &HashFile{Engine: h.Engine, Version: h.Version, Seed: h.Seed, NoneHash: map[string][]byte{}}
	for algo, text := range h.NoneHash {
		root, err := hex.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("none_hash of %s: %w", algo, err)
		}
		f.NoneHash[algo] = root
	}
	return f, nil
}

// ParseHashCase reads one prompt of a file of block hashes. What it describes by a formula or a repetition may
// come to maxTokens tokens, or as many bytes.
func ParseHashCase(line []byte, maxTokens int) (HashCase, error) {
	var l hashLine
	if err := decode(line, &l); err != nil {
		return HashCase{}, err
	}
	if l.Header {
		return HashCase{}, errors.New("a second header: one engine and release a file")
	}
	c := HashCase{
		Name: l.Name, BlockSize: l.BlockSize, Tokens: l.Tokens, LoRA: l.LoRA, CacheSalt: l.CacheSalt, Items: l.Items,
		Lookahead: l.Lookahead, SharedObjects: l.SharedObjects, ExtraKeys: l.ExtraKeys, Results: l.Results,
	}
	if f := l.TokensFormula; f != nil {
		if f.N < 0 || f.N > maxTokens || f.M <= 0 {
			return c, fmt.Errorf("case %q: tokens_formula with n %d and m %d", l.Name, f.N, f.M)
		}
		c.Tokens = make([]int64, f.N)
		for i := range c.Tokens {
			c.Tokens[i] = (f.A*int64(i) + f.B) % f.M
		}
	}
	if len(l.SaltRepeat) > 0 {
		var text string
		var times int
		if len(l.SaltRepeat) != 2 || json.Unmarshal(l.SaltRepeat[0], &text) != nil ||
			json.Unmarshal(l.SaltRepeat[1], &times) != nil || times < 0 || len(text) > 0 && times > maxTokens/len(text) {
			return c, fmt.Errorf("case %q: cache_salt_repeat wants [text, times]", l.Name)
		}
		c.CacheSalt = strings.Repeat(text, times)
	}
	if e := l.Embeds; e != nil {
		data, err := base64.StdEncoding.DecodeString(e.Data)
		if err != nil {
			return c, fmt.Errorf("case %q: prompt_embeds: %w", l.Name, err)
		}
		if len(e.Shape) != 2 || e.Shape[0] < 1 || len(data)%e.Shape[0] != 0 {
			return c, fmt.Errorf("case %q: prompt_embeds of shape %v with %d bytes: want [tokens, hidden]", l.Name, e.Shape, len(data))
		}
		c.Embeds, c.EmbedsPerTok = data, len(data)/e.Shape[0]
	}
	return c, nil
}

package conformance

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/kvatlas/kvatlas/blockhash"
)

// header is a line that says which engine gave the answers after it.
type header struct {
	Header   bool              `json:"header"`
	Engine   string            `json:"engine"`
	Version  string            `json:"version"`
	Seed     *string           `json:"python_hash_seed"`
	NoneHash map[string]string `json:"none_hash"`
}

type line struct {
	Name      string  `json:"name"`
	BlockSize int     `json:"block_size"`
	Tokens    []int64 `json:"tokens"`
	Formula   *struct {
		N, A, B, M int64
	} `json:"tokens_formula"`
	LoRA *struct {
		Name, Path string
		ID         int64
	} `json:"lora"`
	Salt       string `json:"cache_salt"`
	SaltRepeat []any  `json:"cache_salt_repeat"`
	MM         []struct {
		Identifier     string
		Offset, Length int
	} `json:"mm"`
	Embeds *struct {
		Shape []int
		Data  string `json:"data_b64"`
	} `json:"prompt_embeds"`
	Lookahead int  `json:"lookahead"`
	Shared    bool `json:"shared_objects"`
	Results   map[string]struct {
		Hashes, Wire []string
		Error        string
	} `json:"results"`
}

// maxTokens bounds what a formula may ask for.
const maxTokens = 1 << 22

// Read reads vectors: one or more files of the format of testdata/vllm/hash,
// decompressed, one after the other. Each case gives one vector per algorithm
// for which the engine answered. A line that cannot be read gives an error
// with its number.
func Read(r io.Reader) ([]Vector, error) {
	var list []Vector
	var head header
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		var h header
		if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
			return nil, fmt.Errorf("conformance: line %d: %w", n, err)
		}
		if h.Header {
			head = h
			continue
		}
		more, err := readCase(&head, lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("conformance: line %d: %w", n, err)
		}
		list = append(list, more...)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
	}
	return list, nil
}

func readCase(head *header, data []byte) (list []Vector, err error) {
	var l line
	if err := json.Unmarshal(data, &l); err != nil {
		return nil, err
	}
	prompt, err := l.prompt()
	if err != nil {
		return nil, err
	}
	for _, a := range []blockhash.Algorithm{blockhash.SHA256, blockhash.SHA256CBOR, blockhash.XXHash, blockhash.XXHashCBOR} {
		r, ok := l.Results[a.String()]
		if !ok || r.Error != "" {
			continue
		}
		v := Vector{Engine: head.Engine, Version: head.Version, Name: l.Name, Seed: head.Seed, Algorithm: a,
			BlockSize: l.BlockSize, Lookahead: l.Lookahead, SharedObjects: l.Shared, Prompt: prompt}
		if v.Root, err = hex.DecodeString(head.NoneHash[a.String()]); err != nil {
			return nil, err
		}
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

func (l *line) prompt() (p blockhash.Prompt, err error) {
	tokens := l.Tokens
	if f := l.Formula; f != nil {
		if f.N < 0 || f.N > maxTokens || f.M < 1 {
			return p, fmt.Errorf("tokens_formula of %d tokens modulo %d", f.N, f.M)
		}
		for i := range f.N {
			tokens = append(tokens, (f.A*i+f.B)%f.M)
		}
	}
	for _, id := range tokens {
		if id < 0 || id > math.MaxUint32 {
			p.WideTokens = tokens
		}
	}
	if p.WideTokens == nil {
		for _, id := range tokens {
			p.Tokens = append(p.Tokens, uint32(id))
		}
	}
	p.CacheSalt = l.Salt
	if len(l.SaltRepeat) == 2 {
		text, _ := l.SaltRepeat[0].(string)
		n, _ := l.SaltRepeat[1].(float64)
		if n < 0 || n*float64(len(text)) > maxTokens {
			return p, fmt.Errorf("cache_salt_repeat of %v", n)
		}
		p.CacheSalt = strings.Repeat(text, int(n))
	}
	if l.LoRA != nil {
		p.LoRA = &blockhash.LoRA{Name: l.LoRA.Name, Path: l.LoRA.Path, ID: l.LoRA.ID}
	}
	for _, m := range l.MM {
		p.Items = append(p.Items, blockhash.Item{Identifier: m.Identifier, Offset: m.Offset, Length: m.Length})
	}
	if l.Embeds != nil {
		data, err := base64.StdEncoding.DecodeString(l.Embeds.Data)
		if err != nil {
			return p, err
		}
		if len(l.Embeds.Shape) == 0 || l.Embeds.Shape[0] < 1 {
			return p, fmt.Errorf("prompt_embeds of shape %v", l.Embeds.Shape)
		}
		p.Embeds = &blockhash.Embeds{Data: data, BytesPerToken: len(data) / l.Embeds.Shape[0]}
	}
	return p, nil
}

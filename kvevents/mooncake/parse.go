package mooncake

import (
	"math"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/kvatlas/kvatlas/internal/jsonevent"
	"github.com/kvatlas/kvatlas/internal/jsonscan"
	"github.com/kvatlas/kvatlas/kvevents"
)

// parsed is one event as it stands in JSON.
type parsed struct {
	jsonevent.Reader
	id                                          uint64
	hasID                                       bool
	at                                          float64 // seconds since 1970, 0 for none
	typ, model, salt, lora, tenant, backend     string
	medium                                      string
	blockSize, base                             int64
	rank                                        int32
	hashes                                      []uint64
	tokens                                      []uint32
	parent                                      uint64
	hasParent, hasPlace, hasHashes, hasTokenIDs bool
	badRank                                     bool
	content                                     uint64 // a hash of its text
}

func (p *parsed) reset(s *jsonscan.Scanner) {
	*p = parsed{Reader: jsonevent.Reader{Scanner: s}, hashes: p.hashes[:0], tokens: p.tokens[:0], tenant: defaultTenant}
}

func (p *parsed) kind() kvevents.Kind {
	switch p.typ {
	case "stored":
		return kvevents.BlockStored
	case "removed":
		return kvevents.BlockRemoved
	case "cleared":
		return kvevents.AllBlocksCleared
	}
	return kvevents.Unknown
}

// stream tells the streams of a source apart.
func (p *parsed) stream() string {
	text := strconv.AppendInt(nil, p.blockSize, 10)
	text = strconv.AppendInt(append(text, ' '), int64(p.rank), 10)
	for _, part := range []string{p.model, p.salt, p.lora, p.tenant, p.backend, p.medium} {
		text = strconv.AppendQuote(append(text, ' '), part)
	}
	return string(text)
}

// read reads the next value as an event.
func (p *parsed) read(lim *kvevents.Limits) error {
	if p.Peek() != '{' {
		return p.Wrong(kvevents.ReasonNotAnEvent)
	}
	start := p.Pos()
	err := p.Object(func(key string) error { return p.field(key, lim) })
	if err == nil {
		p.content = xxh3.HashString(p.From(start))
		p.check()
	}
	return err
}

func (p *parsed) field(key string, lim *kvevents.Limits) (err error) {
	switch key {
	case "event_id":
		return p.Int(0, math.MaxInt64, func(v int64) { p.id, p.hasID = uint64(v), true })
	case "timestamp":
		raw, err := p.Raw()
		p.at = seconds(raw)
		return err
	case "event_type":
		return p.Text(func(v string) { p.typ = v })
	case "model_name":
		return p.Text(func(v string) { p.model = v })
	case "additional_salt":
		return p.Text(func(v string) { p.salt = v })
	case "lora_name":
		return p.Text(func(v string) { p.lora = v })
	case "tenant_id":
		return p.Text(func(v string) { p.tenant = v })
	case "backend_id":
		return p.Text(func(v string) { p.backend = v })
	case "medium":
		return p.Text(func(v string) { p.medium = v })
	case "block_size":
		return p.Int(0, math.MaxInt32, func(v int64) { p.blockSize = v })
	case "dp_rank":
		p.badRank = p.Peek() != 'n'
		return p.Int(0, math.MaxInt32, func(v int64) { p.rank, p.badRank = int32(v), false })
	case "base_block_idx":
		p.hasPlace = true
		return p.Int(0, math.MaxUint32, func(v int64) { p.base = v })
	case "parent_hash":
		p.hasPlace = true
		p.parent, p.hasParent, err = p.Hash()
		return err
	case "seq_hashes":
		if p.hasHashes {
			return p.Wrong(kvevents.ReasonDuplicateKey)
		}
		p.hasHashes = p.Peek() == '['
		p.hashes, err = p.HashList(p.hashes, lim.Hashes)
		return err
	case "token_ids":
		return p.tokenIDs(lim)
	case "instance_id", "group_id", "object_key", "type", "block_hashes", "parent_block_hash":
		return p.Skip()
	}
	return p.UnknownField()
}

func (p *parsed) tokenIDs(lim *kvevents.Limits) error {
	if p.Peek() == 'n' {
		return p.Skip()
	}
	if p.Peek() != '[' || p.hasTokenIDs {
		return p.Wrong(kvevents.ReasonFieldType)
	}
	p.hasTokenIDs = true
	return p.Array(func() error {
		start := p.Pos()
		id, err := p.Number()
		switch c := p.Peek(); {
		case err != nil || c != ',' && c != ']':
			p.Seek(start)
			return p.Wrong(kvevents.ReasonFieldType)
		case len(p.tokens) >= lim.Tokens:
			p.Bad(kvevents.ReasonLimit)
		default:
			p.tokens = append(p.tokens, id)
		}
		return nil
	})
}

// check looks at the event as a whole.
func (p *parsed) check() {
	kind := p.kind()
	switch {
	case p.typ == "":
		p.Bad(kvevents.ReasonNoType)
	case p.backend == "",
		kind == kvevents.BlockStored && (!p.hasHashes || !p.hasPlace),
		kind == kvevents.BlockRemoved && !p.hasHashes:
		p.Bad(kvevents.ReasonMissingField)
	case len(p.tokens) > 0 && int64(len(p.tokens)) != p.blockSize*int64(len(p.hashes)):
		p.Bad(kvevents.ReasonLength)
	}
}

// seconds reads a timestamp in milliseconds; 0 for null and what is no time.
func seconds(raw string) float64 {
	ms, err := strconv.ParseFloat(raw, 64)
	if err != nil || !(ms > 0) || math.IsInf(ms, 0) {
		return 0
	}
	return ms / 1e3
}

// medium is the name of a medium as it is used here.
func medium(name string) []byte {
	if name = strings.ToUpper(name); name == "DISK" {
		name = "STORAGE"
	}
	return []byte(name)
}

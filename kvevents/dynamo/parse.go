package dynamo

import (
	"encoding/base64"
	"math"

	"github.com/kvatlas/kvatlas/internal/jsonevent"
	"github.com/kvatlas/kvatlas/internal/jsonscan"
	"github.com/kvatlas/kvatlas/kvevents"
)

// parsed is a RouterEvent as it stands in JSON.
type parsed struct {
	jsonevent.Reader
	worker, id, parent   uint64
	hasWorker, hasParent bool
	hasEvent, hasList    bool
	otherDomain, badRank bool
	tier                 string
	rank                 int32
	start                int64
	kind                 kvevents.Kind
	typed                bool // data was there
	hashes, tokens       []uint64
	plain                int // blocks before the first with multimodal content; -1 if none has any
}

func (p *parsed) reset(s *jsonscan.Scanner) {
	*p = parsed{Reader: jsonevent.Reader{Scanner: s}, hashes: p.hashes[:0], tokens: p.tokens[:0], tier: "device", plain: -1}
}

// read reads the next value as a RouterEvent.
func (p *parsed) read(lim *kvevents.Limits) error {
	if p.Peek() != '{' {
		return p.Wrong(kvevents.ReasonNotAnEvent)
	}
	err := p.Object(func(key string) error {
		switch key {
		case "worker_id":
			return p.Uint(func(v uint64) { p.worker, p.hasWorker = v, true })
		case "storage_tier":
			return p.Text(func(v string) { p.tier = v })
		case "residency_domain":
			p.otherDomain = true // null is none that is known
			if p.Peek() != '"' {
				return p.Skip()
			}
			return p.Text(func(v string) { p.otherDomain = v != "worker" })
		case "event":
			if p.Peek() != '{' || p.hasEvent {
				return p.Wrong(kvevents.ReasonFieldType)
			}
			p.hasEvent = true
			return p.event(lim)
		case "state_source":
			return p.Skip()
		}
		return p.UnknownField()
	})
	switch {
	case err != nil:
	case !p.hasWorker || !p.hasEvent || !p.typed:
		p.Bad(kvevents.ReasonMissingField)
	case (p.kind == kvevents.BlockStored || p.kind == kvevents.BlockRemoved) && !p.hasList:
		p.Bad(kvevents.ReasonMissingField)
	}
	return err
}

// event reads a KvCacheEvent.
func (p *parsed) event(lim *kvevents.Limits) error {
	return p.Object(func(key string) error {
		switch key {
		case "event_id":
			return p.Uint(func(v uint64) { p.id = v })
		case "dp_rank":
			p.badRank = p.Peek() != 'n'
			return p.Int(0, math.MaxInt32, func(v int64) { p.rank, p.badRank = int32(v), false })
		case "data":
			if p.typed {
				return p.Wrong(kvevents.ReasonDuplicateKey)
			}
			p.typed = true
			return p.data(lim)
		}
		return p.UnknownField()
	})
}

// data reads {"stored":{...}}, {"removed":{...}} or "cleared".
func (p *parsed) data(lim *kvevents.Limits) error {
	if p.Peek() != '{' {
		text := ""
		err := p.Text(func(v string) { text = v })
		if text == "cleared" {
			p.kind = kvevents.AllBlocksCleared
		}
		return err
	}
	fields := 0
	err := p.Object(func(key string) error {
		if fields++; fields > 1 {
			return p.Wrong(kvevents.ReasonFieldType)
		}
		switch {
		case key == "cleared":
			p.kind = kvevents.AllBlocksCleared
			return p.Skip()
		case key != "stored" && key != "removed":
			return p.Skip()
		case p.Peek() != '{':
			return p.Wrong(kvevents.ReasonFieldType)
		case key == "stored":
			p.kind = kvevents.BlockStored
			return p.stored(lim)
		}
		p.kind = kvevents.BlockRemoved
		return p.removed(lim)
	})
	if fields == 0 {
		p.Bad(kvevents.ReasonNoType)
	}
	return err
}

func (p *parsed) removed(lim *kvevents.Limits) error {
	return p.Object(func(key string) (err error) {
		if key != "block_hashes" {
			return p.UnknownField()
		}
		if p.hasList {
			return p.Wrong(kvevents.ReasonDuplicateKey)
		}
		p.hasList = p.Peek() == '['
		p.hashes, err = p.HashList(p.hashes, lim.Hashes)
		return err
	})
}

func (p *parsed) stored(lim *kvevents.Limits) error {
	return p.Object(func(key string) (err error) {
		switch key {
		case "parent_hash":
			p.parent, p.hasParent, err = p.Hash()
			return err
		case "start_position":
			return p.Int(0, math.MaxUint32, func(v int64) { p.start = v })
		case "blocks":
			if p.Peek() != '[' || p.hasList {
				return p.Wrong(kvevents.ReasonFieldType)
			}
			p.hasList = true
			return p.Array(func() error { return p.block(lim) })
		}
		return p.UnknownField()
	})
}

// block reads a stored block.
func (p *parsed) block(lim *kvevents.Limits) error {
	if p.Peek() != '{' {
		return p.Wrong(kvevents.ReasonFieldType)
	}
	var hash, tokens uint64
	var has, hasTokens bool
	n := len(p.hashes)
	err := p.Object(func(key string) (err error) {
		switch key {
		case "block_hash":
			hash, has, err = p.Hash()
			return err
		case "tokens_hash":
			tokens, hasTokens, err = p.Hash()
			return err
		case "mm_extra_info":
			if p.Peek() != 'n' && p.plain < 0 {
				p.plain = n
			}
			return p.Skip()
		}
		return p.UnknownField()
	})
	switch {
	case err != nil:
	case !has || !hasTokens:
		p.Bad(kvevents.ReasonMissingField)
	case n >= lim.Hashes:
		p.Bad(kvevents.ReasonLimit)
	default:
		p.hashes, p.tokens = append(p.hashes, hash), append(p.tokens, tokens)
	}
	return err
}

// envelope is an EventEnvelope as it stands in JSON.
type envelope struct {
	jsonevent.Reader
	topic                   string
	publisher, number       uint64
	hasPublisher, hasNumber bool
	published               float64 // seconds since 1970
	payload                 []byte
	hasPayload              bool
}

// read reads the next value as an envelope.
func (e *envelope) read() error {
	if e.Peek() != '{' {
		return e.Fail("an envelope is a map")
	}
	return e.Object(func(key string) error {
		switch key {
		case "topic":
			return e.Text(func(v string) { e.topic = v })
		case "publisher_id":
			return e.Uint(func(v uint64) { e.publisher, e.hasPublisher = v, true })
		case "sequence":
			return e.Int(0, math.MaxInt64, func(v int64) { e.number, e.hasNumber = uint64(v), true })
		case "published_at":
			return e.Uint(func(v uint64) { e.published = float64(v) / 1e3 })
		case "published_at_ns":
			return e.Skip()
		case "payload":
			return e.Text(func(v string) {
				payload, err := base64.StdEncoding.DecodeString(v)
				e.payload, e.hasPayload = payload, err == nil
			})
		}
		return e.UnknownField()
	})
}

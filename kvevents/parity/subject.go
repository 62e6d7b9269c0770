package parity

import (
	"strings"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
)

// subject is the first block of an event, as far as it is described. Its tokens are
// in Monitor.tokens: size of them and, behind, what the hash covers beyond.
type subject struct {
	hash      uint64
	size      int
	lookahead int
	eagle     bool
	extras    [1]blockhash.Extra
	hasExtra  bool
	adapter   bool
	salt      []byte
	whole     bool // the event says everything that it could
}

// plain says that the block has nothing but tokens.
func (s *subject) plain() bool { return !s.hasExtra && !s.adapter && len(s.salt) == 0 }

// rootOfNodes is hash(()), the parent of first-level nodes in SGLang before 0.5.1.
const rootOfNodes = 5740354900026072187

// subject reads the first block of an event; ok is false if it cannot be judged: it
// does not begin a prompt, is not on the device, has more than one extra key, or its
// tokens are not known.
func (m *Monitor) subject(ev *kvevents.Event) (s *subject, ok bool) {
	s = &m.subj
	*s = subject{}
	size := ev.BlockSize
	if m.o.HashBlockSize > 0 {
		size = m.o.HashBlockSize
	}
	switch {
	case ev.HasParent, len(ev.Hashes) == 0, size <= 0, ev.BlockSize%max(size, 1) != 0,
		len(ev.Medium) > 0 && !strings.EqualFold(string(ev.Medium), "GPU"):
		return s, false
	}
	m.tokens = m.tokens[:0]
	switch ev.TokenForm {
	case kvevents.TokensPlain:
		// Where blocks of the span are left out, the first hash need not be the first block's.
		if len(ev.Tokens) != len(ev.Hashes)*ev.BlockSize {
			return s, false
		}
		m.tokens = append(m.tokens, ev.Tokens[:ev.BlockSize]...)
	case kvevents.TokensPairs:
		if len(ev.Tokens) != 2*len(ev.Hashes)*ev.BlockSize {
			return s, false
		}
		s.eagle = true
		for i := range ev.BlockSize {
			m.tokens = append(m.tokens, ev.Tokens[2*i])
		}
		m.tokens = append(m.tokens, ev.Tokens[2*ev.BlockSize-1])
	default:
		return s, false
	}
	if len(ev.Lookahead) > 0 {
		s.lookahead = len(ev.Lookahead[0])
		m.tokens = append(m.tokens, ev.Lookahead[0]...)
	}
	s.hash, s.size = ev.Hashes[0], size
	s.adapter = len(ev.LoRAName) > 0 || ev.HasLoRAID
	s.salt = ev.CacheSalt
	s.whole = len(ev.ExtraKeys) > 0 || ev.Fields.Has(kvevents.FieldExtraKeys)
	if len(ev.ExtraKeys) > 0 {
		switch keys := ev.ExtraKeys[0]; {
		case len(keys) == 1 && size == ev.BlockSize:
			s.hasExtra = true
			s.extras[0] = blockhash.Extra{Kind: extraKind(keys[0].Kind), Text: keys[0].Text, Offset: keys[0].Offset}
		case len(keys) > 0:
			return s, false
		}
	}
	return s, true
}

func extraKind(k kvevents.ExtraKind) blockhash.ExtraKind {
	switch k {
	case kvevents.ExtraText:
		return blockhash.ExtraText
	case kvevents.ExtraItem:
		return blockhash.ExtraItem
	case kvevents.ExtraBytes:
		return blockhash.ExtraBytes
	case kvevents.ExtraInt:
		return blockhash.ExtraInt
	}
	return blockhash.ExtraOther
}

// outcome is what a way of hashing says to a block.
type outcome uint8

const (
	differs outcome = iota
	open            // something that the event does not tell may be in the hash
	fits
)

// outcome hashes a block one way. key is 0 where that way has none.
func (m *Monitor) outcome(w way, s *subject) (o outcome, key uint64) {
	h := m.hasher(w)
	if h == nil {
		return differs, 0
	}
	sglang := w.Scheme.Engine() == "sglang"
	if sglang && w.Scheme.Through() == "0.4.7" {
		return differs, 0 // its blocks have a parent always, see Verdict.Nodes
	}
	blind := false // what the event leaves out may be in the hash
	switch {
	case sglang:
		blind = w.Dynamo
		p := blockhash.Prompt{Tokens: m.tokens, CacheSalt: string(s.salt)}
		if s.adapter {
			p.LoRA = &blockhash.LoRA{}
		}
		var err error
		if m.keys, err = h.AppendKeys(m.keys[:0], &p); err != nil {
			return open, 0 // of an adapter's namespace
		}
		if len(m.keys) > 0 {
			key = m.keys[len(m.keys)-1]
		}
	case len(s.salt) > 0, s.adapter && (!s.hasExtra || w.Scheme.LoRAPath()), s.hasExtra && !w.Scheme.EventExtraKeys():
		return open, 0
	case s.hasExtra:
		span := blockhash.Span{Tokens: m.tokens[:s.size], Extras: [][]blockhash.Extra{s.extras[:]}, LoRA: s.adapter}
		if s.lookahead > 0 {
			span.Lookahead = [][]uint32{m.tokens[s.size:]}
		}
		var err error
		if m.digests, err = h.AppendEventDigests(m.digests[:0], nil, &span); err != nil {
			return open, 0
		}
		key = blockhash.KeyOf(m.digests)
	default:
		blind = !s.whole && !m.o.PlainOnly
		var err error
		if m.keys, err = h.AppendKeys(m.keys[:0], &blockhash.Prompt{Tokens: m.tokens}); err != nil || len(m.keys) == 0 {
			return differs, 0
		}
		key = m.keys[len(m.keys)-1]
	}
	switch {
	case key == s.hash:
		return fits, key
	case blind:
		return open, key
	}
	return differs, key
}

// hasher returns the hasher of a way, nil where it has no root.
func (m *Monitor) hasher(w way) *blockhash.Hasher {
	h, known := m.hashers[w]
	if !known {
		if len(m.hashers) > 4096 { // block sizes come from the network
			clear(m.hashers)
		}
		h, _ = blockhash.New(blockhash.Options{Scheme: w.Scheme, Algorithm: w.algorithm, Seed: w.seed, BlockSize: w.size,
			Lookahead: w.lookahead, EAGLE: w.eagle, DynamoEvents: w.Dynamo})
		m.hashers[w] = h
	}
	return h
}

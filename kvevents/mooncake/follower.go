package mooncake

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/kvatlas/kvatlas/internal/jsonevent"
	"github.com/kvatlas/kvatlas/internal/jsonscan"
	"github.com/kvatlas/kvatlas/internal/relay"
	"github.com/kvatlas/kvatlas/kvevents"
)

const defaultTenant = "default"

// Options configure a [Follower]. Handler is required.
type Options struct {
	// Handler receives the events, for example Atlas.Handler. The follower calls it
	// one call at a time; it must not call the follower.
	Handler kvevents.Handler
	// Model, Tenant and Salt say whose events are read: model_name, tenant_id (empty:
	// "default") and additional_salt. Mooncake's master names no model and no salt.
	Model, Tenant, Salt string
	// AnyModel reads the events of all models: for a publisher that has one only.
	AnyModel bool
	// Name names the worker of a backend_id; nil means that itself.
	Name func(backend string) string
	// Limits bound a message: its bytes, and its events; and the hashes and tokens of
	// one event.
	Limits kvevents.Limits
}

// Follower feeds a handler with events as they come: each once and in order, and each
// hole among them as a kvevents.Loss. It remembers up to 1<<14 streams, and of more
// those that spoke last; a stream whose events have a time takes about 4 KiB.
//
// Make it with [NewFollower]; use it from any goroutine, once for each publisher.
type Follower struct {
	o   Options
	lim kvevents.Limits

	mu     sync.Mutex // the fields below
	guard  relay.Guard
	event  parsed
	batch  kvevents.Batch
	json   []byte
	status Status
}

// Status counts what a [Follower] read.
type Status struct {
	// Messages were given, Unreadable ones among them could not be read as a whole.
	Messages, Unreadable uint64
	// Events were read, and among them Malformed and UnknownTypes.
	Events, Malformed, UnknownTypes, UnknownFields uint64
	// Others are events of other models, tenants and salts, Adapters those of a
	// lora_name: they were left out.
	Others, Adapters uint64
	// Placeless are stored events that have tokens but no known place. NoHashes are
	// events without seq_hashes, such as those of the master for objects whose keys are
	// none.
	Placeless, NoHashes uint64
	// Losses, the numbers that they span, restarts, and numbers that came twice.
	Losses, Lost, Restarts, Duplicates uint64
	// Streams that are known, and those that were forgotten to make room.
	Streams int
	Evicted uint64
}

// NewFollower makes a follower. The error names the option at fault.
func NewFollower(o Options) (*Follower, error) {
	switch {
	case o.Handler == nil:
		return nil, errors.New("mooncake: a follower needs a Handler")
	case o.AnyModel && o.Model != "":
		return nil, fmt.Errorf("mooncake: AnyModel and Model %q", o.Model)
	}
	o.Tenant = cmp.Or(o.Tenant, defaultTenant)
	if o.Name == nil {
		o.Name = func(backend string) string { return backend }
	}
	return &Follower{o: o, lim: jsonevent.Limits(o.Limits), guard: relay.Guard{Handler: o.Handler}}, nil
}

// MessageError says why a message could not be read.
type MessageError struct {
	Offset int // in the message as JSON, bytes
	Reason string
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("mooncake: message: byte %d: %s", e.Offset, e.Reason)
}

// Events takes one event, a list of them, or a batch [timestamp, events, rank], in
// msgpack or JSON, numbered by event_id in each stream. The error is a
// [*MessageError]; the events before what cannot be read were applied.
func (f *Follower) Events(message []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.scan(message)
	if err != nil {
		return err
	}
	return f.read(s, nil, 0)
}

// Frames takes the frames of a ZMQ message, as zmtp.Sub receives it: topic, the
// message's number in 8 bytes, and what [Follower.Events] takes. Messages are numbered
// one by one, and event_id does not count.
func (f *Follower) Frames(frames [][]byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(frames) != 3 || len(frames[1]) != 8 || frames[1][0] > 0x7f {
		f.status.Messages++
		return f.unreadable(0, "want three frames: topic, number in 8 bytes, payload")
	}
	number := binary.BigEndian.Uint64(frames[1])
	s, err := f.scan(frames[2])
	at := 0.0
	if err == nil {
		at = timestamp(s)
	}
	p, ok := f.guard.Take("message", number, at, xxh3.Hash(frames[2]))
	if !ok {
		return nil
	}
	if err == nil {
		err = f.read(s, p, number)
	}
	if err != nil {
		f.guard.Broken(p, nil, number, kvevents.LossPayload, true)
	}
	return err
}

// scan begins to read a message, as JSON.
func (f *Follower) scan(message []byte) (s *jsonscan.Scanner, err error) {
	f.status.Messages++
	if s, f.json, err = jsonevent.Open(message, f.json, f.lim.PayloadBytes); err != nil {
		return nil, f.unreadable(0, err.Error())
	}
	return s, nil
}

func (f *Follower) unreadable(offset int, reason string) error {
	f.status.Unreadable++
	return &MessageError{offset, reason}
}

// timestamp looks at the time of a batch, without reading on.
func timestamp(s *jsonscan.Scanner) (at float64) {
	defer s.Seek(s.Pos())
	if s.Peek() == '[' {
		_ = s.Array(func() error {
			if raw, err := s.Raw(); err == nil {
				at = seconds(raw)
			}
			return s.Fail("the first will do")
		})
	}
	return at
}

// read reads events, of one message p if they are numbered so.
func (f *Follower) read(s *jsonscan.Scanner, p *relay.Publisher, number uint64) error {
	place, events, batch := 0, 0, false
	one := func() error {
		if events++; events > f.lim.Events {
			return s.Fail("more events than the limit allows")
		}
		f.event.reset(s)
		if err := f.event.read(&f.lim); err != nil {
			return err
		}
		return f.apply(p, number)
	}
	err := jsonevent.Each(s, f.lim.Events, func() error {
		place++
		batch = batch || place == 1 && s.Peek() != '{' && s.Peek() != '['
		switch {
		case !batch:
			return one()
		case place == 2 && s.Peek() == '[':
			return s.Array(one)
		}
		_, err := s.Raw()
		return err
	})
	if err == nil && batch && place < 2 {
		err = s.Fail("neither an event, nor a list, nor a batch of them")
	}
	if err != nil {
		err = f.unreadable(s.Pos(), err.Error())
	}
	return err
}

// apply passes on the event that was read.
func (f *Follower) apply(p *relay.Publisher, number uint64) error {
	x := &f.event
	f.status.Events++
	f.status.UnknownFields += uint64(x.Unknown)
	src := kvevents.Source{Worker: f.o.Name(x.backend), Rank: x.rank}
	if x.Fault == 0 && !f.ours() {
		return nil
	}
	if p == nil {
		if !x.hasID {
			x.Bad(kvevents.ReasonMissingField)
		} else {
			var ok bool
			number = x.id
			if p, ok = f.guard.Take(x.stream(), x.id, x.at, x.content); !ok {
				return nil
			}
		}
	}
	whose := &src
	if x.backend == "" || x.badRank {
		whose = nil // numbered by stream, the stream's next event shows that one is missing
	}
	if whose != nil && p != nil && !f.guard.See(p, src) {
		return x.Fail("more backends and ranks than are remembered")
	}
	if x.Fault != 0 {
		f.status.Malformed++
		f.guard.Broken(p, whose, number, kvevents.LossEvent, x.kind() != kvevents.BlockStored)
		return nil
	}
	f.translate(src, number)
	return nil
}

// ours tells whether an event is of the model, tenant and salt that are read.
func (f *Follower) ours() bool {
	x := &f.event
	switch {
	case !f.o.AnyModel && x.model != f.o.Model, x.tenant != f.o.Tenant, x.salt != f.o.Salt:
		f.status.Others++
		return false
	case x.lora != "":
		f.status.Adapters++
		return false
	}
	return true
}

func (f *Follower) translate(src kvevents.Source, number uint64) {
	x := &f.event
	b := &f.batch
	b.Reset()
	b.Timestamp, b.Rank, b.HasRank, b.UnknownFields = x.at, x.rank, true, x.Unknown
	e := kvevents.Event{Kind: x.kind(), Medium: medium(x.medium)}
	switch e.Kind {
	case kvevents.Unknown:
		f.status.UnknownTypes++
		return
	case kvevents.AllBlocksCleared:
	default:
		if len(x.hashes) == 0 {
			f.status.NoHashes++
			return
		}
		e.Hashes = x.hashes
	}
	if e.Kind == kvevents.BlockStored {
		e.BlockSize, e.Parent, e.HasParent = int(x.blockSize), x.parent, x.hasParent
		if len(x.tokens) > 0 {
			if x.hasParent || x.base == 0 {
				e.Tokens = x.tokens
			} else {
				f.status.Placeless++
			}
		}
	}
	b.Events = append(b.Events, e)
	f.o.Handler.Apply(src, number, b)
}

// Status returns the counts as of now.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := f.status
	g := &f.guard
	st.Losses, st.Lost, st.Restarts, st.Duplicates, st.Evicted = g.Losses, g.Lost, g.Restarts, g.Duplicates, g.Evicted
	st.Streams, _ = g.Publishers()
	return st
}

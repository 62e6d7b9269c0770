package dynamo

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/kvatlas/kvatlas/internal/jsonevent"
	"github.com/kvatlas/kvatlas/internal/jsonscan"
	"github.com/kvatlas/kvatlas/internal/relay"
	"github.com/kvatlas/kvatlas/kvevents"
)

// Options configure a [Follower]. Handler is required.
type Options struct {
	// Handler receives the events, for example Atlas.Handler. The follower calls it
	// one call at a time; it must not call the follower.
	Handler kvevents.Handler
	// Name names the worker of a worker_id; nil means its decimal digits. The ranks
	// of its sources are the events' dp_rank.
	Name func(worker uint64) string
	// Limits bound a message: its bytes, and its events; and the hashes of one event.
	Limits kvevents.Limits
}

// Follower feeds a handler with events as they come from Dynamo's event plane: each
// once and in order, and each hole among them as a kvevents.Loss. It remembers up to
// 1<<14 publishers and sources, and of more those that spoke last; a publisher takes
// about 4 KiB.
//
// Make it with [NewFollower]; use it from any goroutine.
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
	// OtherDomains and OtherTiers are events left out for their residency domain or
	// their storage tier; Multimodal are blocks announced by hash alone.
	OtherDomains, OtherTiers, Multimodal uint64
	// Losses, the numbers that they span, restarts of publishers, and messages that
	// came twice.
	Losses, Lost, Restarts, Duplicates uint64
	// Publishers and Sources that are known, and the publishers that were forgotten
	// to make room.
	Publishers, Sources int
	Evicted             uint64
}

// NewFollower makes a follower. The error names the option at fault.
func NewFollower(o Options) (*Follower, error) {
	if o.Handler == nil {
		return nil, errors.New("dynamo: a follower needs a Handler")
	}
	if o.Name == nil {
		o.Name = func(worker uint64) string { return strconv.FormatUint(worker, 10) }
	}
	return &Follower{o: o, lim: jsonevent.Limits(o.Limits), guard: relay.Guard{Handler: o.Handler, Exclusive: true}}, nil
}

// MessageError says why a message could not be read.
type MessageError struct {
	Offset int // in the message as JSON, bytes
	Reason string
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("dynamo: message: byte %d: %s", e.Offset, e.Reason)
}

// Frames takes the frames of a ZMQ message of the event plane, as zmtp.Sub receives it:
// topic, publisher id, sequence, and an envelope behind a header of 5 bytes, which are a
// version and the envelope's length.
func (f *Follower) Frames(frames [][]byte) error {
	const header = 5
	var last []byte
	if n := len(frames); n > 0 {
		last = frames[n-1]
	}
	if len(last) < header || last[0] != 1 || int64(binary.BigEndian.Uint32(last[1:])) != int64(len(last)-header) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.status.Messages++
		return f.unreadable(0, "want the last frame to begin with the version, 1, and the envelope's length")
	}
	return f.Envelope(last[header:])
}

// Envelope takes a message of the event plane, in msgpack or JSON. The error is a
// [*MessageError]; what it means for what was known the handler was told.
func (f *Follower) Envelope(message []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.scan(message)
	if err != nil {
		return err
	}
	e := envelope{Reader: jsonevent.Reader{Scanner: s}}
	if err := e.read(); err != nil {
		return f.unreadable(s.Pos(), err.Error())
	}
	if !e.hasPublisher || !e.hasNumber {
		return f.unreadable(s.Pos(), "no publisher_id or sequence")
	}
	f.status.UnknownFields += uint64(e.Unknown)
	p, ok := f.guard.Take(strconv.FormatUint(e.publisher, 10)+"/"+e.topic, e.number, e.published, xxh3.Hash(message))
	if !ok {
		return nil
	}
	if !e.hasPayload {
		f.guard.Broken(p, nil, e.number, kvevents.LossPayload, true)
		return f.unreadable(s.Pos(), "no payload of binary")
	}
	f.status.Messages-- // counted for the payload
	return f.events(e.payload, p, &e)
}

// Events takes a RouterEvent or a list of them, in msgpack or JSON. Nothing tells
// whether one is missing before it.
func (f *Follower) Events(message []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events(message, nil, &envelope{})
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

// events takes the payload of an envelope, or events without one, where p is nil.
func (f *Follower) events(message []byte, p *relay.Publisher, e *envelope) error {
	s, err := f.scan(message)
	if err == nil {
		err = jsonevent.Each(s, f.lim.Events, func() error {
			f.event.reset(s)
			if err := f.event.read(&f.lim); err != nil {
				return err
			}
			return f.apply(p, e)
		})
		if err != nil {
			err = f.unreadable(s.Pos(), err.Error())
		}
	}
	if err != nil && p != nil {
		f.guard.Broken(p, nil, e.number, kvevents.LossPayload, true)
	}
	return err
}

// apply passes on the event that was read.
func (f *Follower) apply(p *relay.Publisher, e *envelope) error {
	x := &f.event
	f.status.Events++
	f.status.UnknownFields += uint64(x.Unknown)
	number := x.id
	if p != nil {
		number = e.number
	}
	src := kvevents.Source{Rank: x.rank}
	var whose *kvevents.Source
	if x.hasWorker && !x.badRank {
		src.Worker = f.o.Name(x.worker)
		whose = &src
		if p != nil && !f.guard.See(p, src) {
			return x.Fail("more workers and ranks than are remembered")
		}
	}
	if x.Fault != 0 {
		f.status.Malformed++
		f.guard.Broken(p, whose, number, kvevents.LossEvent, x.kind != kvevents.BlockStored)
		return nil
	}
	medium, known := media[x.tier]
	switch {
	case x.otherDomain:
		f.status.OtherDomains++
		return nil
	case x.kind == kvevents.Unknown:
		f.status.UnknownTypes++
		return nil
	case !known && x.kind != kvevents.AllBlocksCleared:
		f.status.OtherTiers++
		return nil
	}
	b := &f.batch
	b.Reset()
	b.Timestamp, b.Rank, b.HasRank, b.UnknownFields = e.published, x.rank, true, x.Unknown
	switch x.kind {
	case kvevents.AllBlocksCleared:
		b.Events = append(b.Events, kvevents.Event{Kind: x.kind})
	case kvevents.BlockRemoved:
		if len(x.hashes) > 0 {
			b.Events = append(b.Events, kvevents.Event{Kind: x.kind, Hashes: x.hashes, Medium: medium})
		}
	default:
		f.stored(b, medium)
	}
	f.o.Handler.Apply(src, number, b)
	return nil
}

// stored announces blocks with the hashes of their tokens as far as these tell what
// is in them.
func (f *Follower) stored(b *kvevents.Batch, medium []byte) {
	x := &f.event
	n := len(x.hashes)
	if x.plain >= 0 {
		n = x.plain
		f.status.Multimodal += uint64(len(x.hashes) - n)
	}
	if !x.hasParent && x.start > 0 {
		n = 0
	}
	if n > 0 {
		b.Events = append(b.Events, kvevents.Event{
			Kind: kvevents.BlockStored, Hashes: x.hashes[:n], TokenHashes: x.tokens[:n], Medium: medium,
			Parent: x.parent, HasParent: x.hasParent,
		})
	}
	if n < len(x.hashes) {
		b.Events = append(b.Events, kvevents.Event{Kind: kvevents.BlockStored, Hashes: x.hashes[n:], Medium: medium})
	}
}

// media of the storage tiers.
var media = map[string][]byte{
	"device": []byte("GPU"), "host_pinned": []byte("CPU"), "disk": []byte("STORAGE"), "external": []byte("EXTERNAL"),
}

// Status returns the counts as of now.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := f.status
	g := &f.guard
	st.Losses, st.Lost, st.Restarts, st.Duplicates, st.Evicted = g.Losses, g.Lost, g.Restarts, g.Duplicates, g.Evicted
	st.Publishers, st.Sources = g.Publishers()
	return st
}

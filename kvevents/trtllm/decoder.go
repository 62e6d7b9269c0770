package trtllm

import (
	"fmt"
	"slices"

	"github.com/kvatlas/kvatlas/internal/jsonevent"
	"github.com/kvatlas/kvatlas/internal/jsonscan"
	"github.com/kvatlas/kvatlas/kvevents"
)

// maxRanks bounds the attention data-parallel ranks of one engine.
const maxRanks = 1024

// Options configure a [Decoder]. BlockSize is required.
type Options struct {
	// BlockSize is the engine's tokens_per_block.
	BlockSize int
	// Windows are the attention windows (window_size) of the worker's cache
	// groups, in the groups' order. Nil: one group, of the largest window.
	Windows []int
	// Limits bound one event; PayloadBytes also an answer of the engine.
	Limits kvevents.Limits
}

func (o *Options) validate() error {
	switch {
	case o.BlockSize < 1:
		return fmt.Errorf("trtllm: BlockSize is %d, want the engine's tokens_per_block", o.BlockSize)
	case len(o.Windows) > 255:
		return fmt.Errorf("trtllm: %d Windows, want at most 255", len(o.Windows))
	}
	for i, w := range o.Windows {
		if w < 1 || slices.Contains(o.Windows[:i], w) {
			return fmt.Errorf("trtllm: window %d of cache group %d: want 1 or more, each once", w, i)
		}
	}
	return nil
}

// Stats count what a [Decoder] left out. Malformed and unknown events are counted
// in the batches.
type Stats struct {
	// OtherWindows are events of windows and layer groups that are not read.
	OtherWindows uint64
	// Partial blocks had fewer tokens than a whole one; Special blocks a salt,
	// multimodal keys or extra ids, or such a block before them.
	Partial, Special uint64
	// NewWindows counts how often a larger window than before showed up after
	// blocks had been announced, so that these were forgotten.
	NewWindows uint64
}

// Decoder reads events one by one. It remembers which attention windows an engine
// has, so use one for each engine, and give it all events in order. It is not safe
// for concurrent use; make it with [NewDecoder].
type Decoder struct {
	o     Options
	lim   kvevents.Limits
	ranks map[int32]*windows
	event parsed
	stats Stats
}

// windows are those of one rank, group by group: the largest if they are not given.
type windows struct {
	window []int64
	layer  []int64 // the smallest layer_group_id with that window; -1 if none has one
	stored []bool  // blocks were announced
}

// NewDecoder makes a decoder. The error names the option at fault.
func NewDecoder(o Options) (*Decoder, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o.Windows = slices.Clone(o.Windows)
	return &Decoder{o: o, lim: jsonevent.Limits(o.Limits), ranks: map[int32]*windows{}}, nil
}

// Stats returns the counts since NewDecoder.
func (d *Decoder) Stats() Stats { return d.stats }

// EventError says why an event could not be read at all: it is not JSON, or has no
// event_id, so that its place among the others is not known.
type EventError struct {
	Offset int // in the text, bytes
	Reason string
}

func (e *EventError) Error() string {
	return fmt.Sprintf("trtllm: event: byte %d: %s", e.Offset, e.Reason)
}

// Decode reads one event, such as {"event_id":1,"data":{"type":"stored",...}}, into
// b, which it empties first, and returns its number. Batch.Rank is the attention
// data-parallel rank, if it has one. An event that changes nothing gives a batch
// without events; one that cannot be read gives an entry in Batch.Malformed. The
// error is an [*EventError].
//
// Decode is safe on untrusted bytes. What b holds belongs to the decoder and is
// valid until the next Decode.
func (d *Decoder) Decode(event []byte, b *kvevents.Batch) (id uint64, err error) {
	s := jsonscan.New(string(event))
	id, err = d.decode(s, b)
	if err == nil && !s.End() {
		b.Reset()
		err = &EventError{s.Pos(), "text after the event"}
	}
	return id, err
}

// decode reads the next value of s.
func (d *Decoder) decode(s *jsonscan.Scanner, b *kvevents.Batch) (id uint64, err error) {
	b.Reset()
	p := &d.event
	p.reset(s)
	if err := p.read(d.lim); err != nil {
		return 0, asEventError(s, err)
	}
	if !p.hasID {
		return 0, &EventError{s.Pos(), "no event_id"}
	}
	b.Rank, b.HasRank = p.rank, p.hasRank
	b.UnknownFields = p.Unknown
	if p.Fault != 0 {
		b.Malformed = append(b.Malformed, kvevents.Malformed{Reason: p.Fault, Kind: p.kind()})
		return p.id, nil
	}
	d.translate(p, b)
	return p.id, nil
}

func asEventError(s *jsonscan.Scanner, err error) error {
	e, ok := err.(*jsonscan.SyntaxError)
	if !ok {
		return &EventError{s.Pos(), err.Error()}
	}
	return &EventError{e.Offset, e.Reason}
}

// translate makes events of what was read.
func (d *Decoder) translate(p *parsed, b *kvevents.Batch) {
	kind := p.kind()
	if kind == kvevents.Unknown && p.typ != "updated" {
		b.UnknownTypes++
		return
	}
	group, ok := d.group(p, b)
	if !ok {
		d.stats.OtherWindows++
		return
	}
	switch kind {
	case kvevents.BlockStored:
		d.stored(p, group, b)
	case kvevents.BlockRemoved:
		if len(p.hashes) > 0 {
			d.add(b, group, kvevents.Event{Kind: kind, Hashes: p.hashes})
		}
	case kvevents.AllBlocksCleared:
		b.Events = append(b.Events, kvevents.Event{Kind: kind})
	default:
		if p.moved && p.from != p.to {
			d.add(b, group, kvevents.Event{Kind: kvevents.BlockRemoved, Hashes: p.hashes, Medium: medium(p.from)})
			d.add(b, group, kvevents.Event{Kind: kvevents.BlockStored, Hashes: p.hashes, Medium: medium(p.to)})
		}
	}
}

// add appends an event of a cache group.
func (d *Decoder) add(b *kvevents.Batch, group int, e kvevents.Event) {
	if len(d.o.Windows) > 1 {
		e.HasGroup, e.Group = true, int32(group)
	}
	b.Events = append(b.Events, e)
}

// group finds the cache group of an event; false if its events are not read. Where
// what was read so far turns out to be of a smaller window, or of one layer group
// too many, it begins with forgetting it.
func (d *Decoder) group(p *parsed, b *kvevents.Batch) (group int, ok bool) {
	w := d.ranks[p.rank]
	if w == nil {
		n := max(len(d.o.Windows), 1)
		w = &windows{window: make([]int64, n), layer: slices.Repeat([]int64{-1}, n), stored: make([]bool, n)}
		for i, size := range d.o.Windows {
			w.window[i] = int64(size)
		}
		d.ranks[p.rank] = w
	}
	newer := false
	if p.hasWindow {
		if len(d.o.Windows) > 0 {
			if group = slices.Index(w.window, p.window); group < 0 {
				return 0, false
			}
		} else if p.window < w.window[0] {
			return 0, false
		} else if p.window > w.window[0] {
			newer = w.window[0] > 0 || w.stored[0]
			w.window[0], w.layer[0] = p.window, -1
		}
	}
	if p.hasLayer {
		switch was := w.layer[group]; {
		case was >= 0 && p.layer > was:
			return 0, false
		case was >= 0 && p.layer < was:
			newer = true
		}
		w.layer[group] = p.layer
	}
	if newer && w.stored[group] {
		d.stats.NewWindows++
		b.Events = append(b.Events, kvevents.Event{Kind: kvevents.AllBlocksCleared})
		clear(w.stored)
	}
	w.stored[group] = w.stored[group] || p.kind() == kvevents.BlockStored
	return group, true
}

// stored announces runs of whole plain blocks with their tokens, and all others by
// hash alone.
func (d *Decoder) stored(p *parsed, group int, b *kvevents.Batch) {
	special := false
	for i := 0; i < len(p.blocks); {
		x := &p.blocks[i]
		n := x.end - x.start
		last := i == len(p.blocks)-1
		special = special || x.special
		switch {
		case special:
			d.stats.Special++
			d.add(b, group, kvevents.Event{Kind: kvevents.BlockStored, Hashes: p.hashes[i : i+1], Medium: medium(x.level)})
			i++
			continue
		case last && n < d.o.BlockSize:
			d.stats.Partial++
			d.add(b, group, kvevents.Event{Kind: kvevents.BlockStored, Hashes: p.hashes[i : i+1], Medium: medium(x.level)})
			i++
			continue
		}
		j := i + 1
		for j < len(p.blocks) {
			y := &p.blocks[j]
			if y.special || y.level != x.level || y.end-y.start != n {
				break
			}
			j++
		}
		e := kvevents.Event{Kind: kvevents.BlockStored, Hashes: p.hashes[i:j], Medium: medium(x.level), BlockSize: n,
			Tokens: p.tokens[x.start:p.blocks[j-1].end]}
		if e.Parent, e.HasParent = p.parent, p.hasParent; i > 0 {
			e.Parent, e.HasParent = p.hashes[i-1], true
		}
		d.add(b, group, e)
		i = j
	}
}

// The media of cache levels; tests compare with them.
var levels = [...][]byte{[]byte("GPU"), []byte("CPU"), []byte("STORAGE")}

func medium(level int64) []byte { return levels[min(level, int64(len(levels)-1))] }

package kvevents

import "math"

// Decoder decodes payloads. The zero value uses the default [Limits]. It
// holds no state: one Decoder may be used by many goroutines at once, each
// with a Batch of its own.
type Decoder struct {
	Limits Limits
}

// Decode reads one payload into b, which it empties first. Malformed events
// and unknown types and fields are no error: b counts them.
//
// The error is a [*DecodeError], and b is then empty: a payload that cannot be
// read to its end has no effect at all. A nil b is [ErrNoBatch]. Decode is safe on untrusted bytes. It
// does not allocate once b has held as much, and b borrows from payload (see
// the package documentation).
func (d *Decoder) Decode(payload []byte, b *Batch) error {
	if b == nil {
		return ErrNoBatch
	}
	b.Reset()
	r := reader{cursor: cursor{buf: payload}, b: b, lim: d.Limits.withDefaults()}
	if err := r.payload(); err != nil {
		b.Reset()
		return &DecodeError{Offset: r.pos, Err: err}
	}
	return nil
}

// reader decodes one payload into one batch.
type reader struct {
	cursor
	b   *Batch
	lim Limits
}

// notBatch turns a fault outside of any event into the payload's error.
func notBatch(f fault) error {
	switch f {
	case 0:
		return nil
	case faultTruncated:
		return ErrTruncated
	case faultInvalid:
		return ErrInvalid
	}
	return ErrNotBatch
}

func (r *reader) payload() error {
	if len(r.buf) > r.lim.PayloadBytes {
		return ErrLimit
	}
	var err error
	if h, f := r.peek(); f != 0 {
		return ErrTruncated
	} else if h>>4 == 8 || h == 0xde || h == 0xdf {
		err = r.mapBatch()
	} else {
		err = r.arrayBatch()
	}
	if err == nil && r.pos < len(r.buf) {
		return ErrTrailing
	}
	return err
}

// arrayBatch reads [ts, events, rank?, ...]; later elements are skipped.
func (r *reader) arrayBatch() error {
	n, f := r.arrayLen()
	if f != 0 {
		return notBatch(f)
	}
	if n < 2 {
		return ErrNotBatch
	}
	if r.b.Timestamp, f = r.number(); f != 0 {
		return notBatch(f)
	}
	if err := r.events(); err != nil {
		return err
	}
	if n > 2 {
		if err := r.rank(); err != nil {
			return err
		}
	}
	for range n - 3 {
		r.b.UnknownFields++
		if f := r.skip(); f != 0 {
			return notBatch(f)
		}
	}
	return nil
}

// mapBatch reads the same as a map, in any order. No engine sends one yet.
func (r *reader) mapBatch() error {
	n, f := r.mapLen()
	if f != 0 {
		return notBatch(f)
	}
	var ts, events, rank int
	for range n {
		key, f := r.text(false)
		if f != 0 {
			if fatal(f) {
				return notBatch(f)
			}
			if f = r.skip(); f != 0 {
				return notBatch(f)
			}
		}
		switch string(key) {
		case "ts":
			ts++
			if r.b.Timestamp, f = r.number(); f != 0 {
				return notBatch(f)
			}
		case "events":
			if events++; events > 1 {
				return ErrNotBatch
			}
			if err := r.events(); err != nil {
				return err
			}
		case "data_parallel_rank", "attn_dp_rank":
			rank++
			if err := r.rank(); err != nil {
				return err
			}
		default:
			r.b.UnknownFields++
			if f = r.skip(); f != 0 {
				return notBatch(f)
			}
		}
	}
	if ts != 1 || events != 1 || rank > 1 {
		return ErrNotBatch
	}
	return nil
}

func (r *reader) rank() error {
	if r.takeNil() {
		return nil
	}
	v, f := r.int(0, math.MaxInt32)
	r.b.Rank, r.b.HasRank = int32(v), true
	return notBatch(f)
}

// events reads the list of events. A malformed one is passed over from its
// first byte on, with everything it had put into the batch taken back.
func (r *reader) events() error {
	n, f := r.arrayLen()
	if f != 0 {
		return notBatch(f)
	}
	if n > r.lim.Events {
		return ErrLimit
	}
	b := r.b
	for i := range n {
		start, was := r.pos, *b
		b.Events = append(b.Events, Event{})
		f := r.event(&b.Events[len(b.Events)-1])
		if f == 0 {
			continue
		}
		if !fatal(f) {
			kind := b.Events[len(b.Events)-1].Kind
			b.rollback(&was)
			b.Malformed = append(b.Malformed, Malformed{Index: i, Reason: f, Kind: kind})
			r.pos = start
			f = r.skip()
		}
		if f != 0 {
			return notBatch(f)
		}
	}
	return nil
}

// rollback takes the lengths and counts back to those of was, but keeps
// memory that has grown since.
func (b *Batch) rollback(was *Batch) {
	b.Events = b.Events[:len(was.Events)]
	b.UnknownTypes, b.UnknownFields = was.UnknownTypes, was.UnknownFields
	b.hashes = b.hashes[:len(was.hashes)]
	b.tokens = b.tokens[:len(was.tokens)]
	b.extras = b.extras[:len(was.extras)]
	b.extraLists = b.extraLists[:len(was.extraLists)]
	b.lookLists = b.lookLists[:len(was.lookLists)]
}

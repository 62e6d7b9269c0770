// Package jsonevent reads events in JSON, or in msgpack that stands for JSON, as
// engines and relays without a msgpack form of vLLM's kind send them. A value of a
// wrong form is passed over and noted, so that the rest of an event can still be
// read: its number, above all.
package jsonevent

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/kvatlas/kvatlas/internal/jsonscan"
	"github.com/kvatlas/kvatlas/kvevents"
)

// Reader reads the values of one event. Errors of its methods are those of the
// scanner: what follows cannot be read either.
type Reader struct {
	*jsonscan.Scanner
	// Unknown counts fields that were passed over.
	Unknown int
	// Fault is the first thing wrong with the event, 0 if nothing is.
	Fault kvevents.Reason
}

// Bad notes a fault.
func (r *Reader) Bad(reason kvevents.Reason) {
	if r.Fault == 0 {
		r.Fault = reason
	}
}

// Skip passes a value.
func (r *Reader) Skip() error {
	_, err := r.Raw()
	return err
}

// UnknownField passes the value of a field that is not known.
func (r *Reader) UnknownField() error {
	r.Unknown++
	return r.Skip()
}

// Wrong passes a value of a wrong form.
func (r *Reader) Wrong(reason kvevents.Reason) error {
	r.Bad(reason)
	return r.Skip()
}

// Int reads a whole number within bounds and hands it to set; null sets nothing.
func (r *Reader) Int(least, most int64, set func(int64)) error {
	raw, err := r.Raw()
	if err != nil || raw == "null" {
		return err
	}
	v, err := strconv.ParseInt(raw, 10, 64)
	if err != nil || v < least || v > most {
		r.Bad(kvevents.ReasonFieldType)
		return nil
	}
	set(v)
	return nil
}

// Uint reads a whole number of 64 bits without a sign and hands it to set; null sets
// nothing.
func (r *Reader) Uint(set func(uint64)) error {
	raw, err := r.Raw()
	if err != nil || raw == "null" {
		return err
	}
	v, err := strconv.ParseUint(raw, 10, 64)
	if err != nil {
		r.Bad(kvevents.ReasonFieldType)
		return nil
	}
	set(v)
	return nil
}

// Text reads a text and hands it to set; null sets nothing.
func (r *Reader) Text(set func(string)) error {
	if r.Peek() != '"' {
		raw, err := r.Raw()
		if err == nil && raw != "null" {
			r.Bad(kvevents.ReasonFieldType)
		}
		return err
	}
	text, err := r.Str()
	if err == nil {
		set(text)
	}
	return err
}

// Hash reads a block hash: a number of 64 bits, signed or not; hex digits of a
// digest, of which the last 8 bytes count; or any other text, which is a name. ok is
// false for null, and for what is no hash, which is a fault.
func (r *Reader) Hash() (h uint64, ok bool, err error) {
	if r.Peek() == '"' {
		text, err := r.Str()
		return TextHash(text), err == nil, err
	}
	raw, err := r.Raw()
	if err != nil || raw == "null" {
		return 0, false, err
	}
	h, ok = Bits(raw)
	if !ok {
		r.Bad(kvevents.ReasonHash)
	}
	return h, ok, nil
}

// Bits reads a whole number that fits 64 bits, with a sign or without.
func Bits(text string) (v uint64, ok bool) {
	if strings.HasPrefix(text, "-") {
		signed, err := strconv.ParseInt(text, 10, 64)
		return uint64(signed), err == nil
	}
	v, err := strconv.ParseUint(text, 10, 64)
	return v, err == nil
}

// TextHash makes a block hash of a text.
func TextHash(text string) uint64 {
	var digest [8]byte
	if n := len(text); n >= 16 && n%2 == 0 {
		if _, err := hex.Decode(digest[:], []byte(text[n-16:])); err == nil {
			return binary.BigEndian.Uint64(digest[:])
		}
	}
	return xxh3.HashString(text)
}

// Limits fills in the defaults of limits that are left out.
func Limits(l kvevents.Limits) kvevents.Limits {
	for _, f := range []struct {
		value *int
		def   int
	}{{&l.PayloadBytes, 64 << 20}, {&l.Events, 1 << 17}, {&l.Hashes, 1 << 21}, {&l.Tokens, 1 << 25}} {
		if *f.value <= 0 {
			*f.value = f.def
		}
	}
	return l
}

// HashList reads a list of hashes, of which most may be read, after those that dst
// has. Null is an empty list.
func (r *Reader) HashList(dst []uint64, most int) ([]uint64, error) {
	if r.Peek() != '[' {
		raw, err := r.Raw()
		if err == nil && raw != "null" {
			r.Bad(kvevents.ReasonFieldType)
		}
		return dst, err
	}
	err := r.Array(func() error {
		h, ok, err := r.Hash()
		switch {
		case err != nil:
			return err
		case !ok:
			r.Bad(kvevents.ReasonHash)
		case len(dst) >= most:
			r.Bad(kvevents.ReasonLimit)
		default:
			dst = append(dst, h)
		}
		return nil
	})
	return dst, err
}

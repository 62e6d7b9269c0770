package lmcache

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

type constError string

func (e constError) Error() string { return string(e) }

// ErrMessage is wrapped by every error of [Decode] and [DecodeAs].
const ErrMessage = constError("lmcache: not a message of the controller's protocol")

// MaxMessageBytes bounds a message; what is longer is refused unread. Memory is
// taken as values are read, never by a mere claim: at most some 40 bytes for a byte of
// the message.
const MaxMessageBytes = 16 << 20

// maxDepth bounds the nesting of fields that are not known here.
const maxDepth = 32

// Decode reads one message of any release. It is as strict as LMCache: every
// required field must be there and of its type, fields that are not known are
// skipped. The message does not refer to the payload. It is safe on untrusted bytes; the
// error wraps [ErrMessage] and names the field.
func Decode(payload []byte) (Message, error) { return DecodeAs("", payload) }

// DecodeAs is [Decode] for a message whose class is known: it must be the one
// that the message names, if it names one (a KVOpEvent does not). "" is any.
func DecodeAs(class string, payload []byte) (Message, error) {
	r := reader{rest: bytes.NewReader(payload)}
	r.dec = msgpack.NewDecoder(r.rest)
	named, err := r.class(payload)
	if err != nil {
		return nil, fail(class, err)
	}
	switch {
	case class == "":
		class = named
	case named != "" && named != class:
		return nil, fmt.Errorf("%w: it is a %q, want a %s", ErrMessage, clip(named), class)
	}
	t, ok := classes[class]
	if !ok && class == "" {
		return nil, fmt.Errorf(`%w: no field "type"`, ErrMessage)
	}
	if !ok {
		return nil, fmt.Errorf("%w: class %q is not known", ErrMessage, clip(class))
	}
	m := reflect.New(t)
	r.rest.Reset(payload)
	if err := r.fields(m.Elem(), "type"); err != nil {
		return nil, fail(class, err)
	}
	if n := r.rest.Len(); n > 0 {
		return nil, fmt.Errorf("%w: %s: %d bytes follow it", ErrMessage, class, n)
	}
	return m.Interface().(Message), nil
}

func fail(class string, err error) error {
	if class == "" {
		return fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return fmt.Errorf("%w: %s%w", ErrMessage, class, err)
}

// clip keeps what a message claims to be out of the way of what we say.
func clip(s string) string { return s[:min(len(s), 64)] }

// at puts a place before an error.
func at(place string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s%w", place, err)
}

func wrong(want string, code byte) error { return fmt.Errorf(": want %s, got %s", want, kindOf(code)) }

// kindOf names the type of a value by its first byte.
func kindOf(c byte) string {
	switch {
	case isInt(c):
		return "an integer"
	case msgpcode.IsString(c):
		return "text"
	case msgpcode.IsBin(c):
		return "bytes"
	case c == msgpcode.Nil:
		return "None"
	case c == msgpcode.True, c == msgpcode.False:
		return "a bool"
	case c == msgpcode.Float, c == msgpcode.Double:
		return "a float"
	case isArray(c):
		return "a list"
	case isMap(c):
		return "a map"
	}
	return fmt.Sprintf("type 0x%02x", c)
}

func isInt(c byte) bool {
	return msgpcode.IsFixedNum(c) || c >= msgpcode.Uint8 && c <= msgpcode.Int64
}

func isArray(c byte) bool {
	return msgpcode.IsFixedArray(c) || c == msgpcode.Array16 || c == msgpcode.Array32
}

func isMap(c byte) bool {
	return msgpcode.IsFixedMap(c) || c == msgpcode.Map16 || c == msgpcode.Map32
}

// reader reads values into fields as their tags say, see shape.
type reader struct {
	rest *bytes.Reader
	dec  *msgpack.Decoder
}

// class finds the field "type", wherever it stands.
func (r *reader) class(payload []byte) (string, error) {
	if len(payload) > MaxMessageBytes {
		return "", fmt.Errorf("%d bytes, at most %d are read", len(payload), MaxMessageBytes)
	}
	n, err := r.mapLen()
	if err != nil {
		return "", at("the message", err)
	}
	for range n {
		name, err := r.text()
		if err != nil {
			return "", at("a field's name", err)
		}
		if name == "type" {
			class, err := r.text()
			return class, at(".type", err)
		}
		if err := r.skip(maxDepth); err != nil {
			return "", at("."+clip(name), err)
		}
	}
	return "", nil
}

func (r *reader) peek() (byte, error) {
	c, err := r.dec.PeekCode()
	if err != nil {
		return 0, errTruncated
	}
	return c, nil
}

const errTruncated = constError(": it is cut off")

func (r *reader) text() (string, error) {
	c, err := r.peek()
	if err != nil {
		return "", err
	}
	if !msgpcode.IsString(c) {
		return "", wrong("text", c)
	}
	n, err := r.dec.DecodeBytesLen() // below 0 where an int has 32 bits, which DecodeString takes for 0
	if err != nil || n < 0 || n > r.rest.Len() {
		return "", errTruncated
	}
	s := make([]byte, n)
	if r.dec.ReadFull(s) != nil {
		return "", errTruncated
	}
	return string(s), nil
}

// length reads the head of a list or map; each of its values is a byte at least.
func (r *reader) length(want string, is func(byte) bool, head func() (int, error), per int) (int, error) {
	c, err := r.peek()
	if err != nil {
		return 0, err
	}
	if !is(c) {
		return 0, wrong(want, c)
	}
	n, err := head()
	if err != nil || n < 0 || n > r.rest.Len()/per {
		return 0, errTruncated
	}
	return n, nil
}

func (r *reader) arrayLen() (int, error) {
	return r.length("a list", isArray, r.dec.DecodeArrayLen, 1)
}

func (r *reader) mapLen() (int, error) { return r.length("a map", isMap, r.dec.DecodeMapLen, 2) }

// skip passes one value. msgpack's own Skip would follow any nesting.
func (r *reader) skip(depth int) error {
	c, err := r.peek()
	if err != nil {
		return err
	}
	n := 0
	switch {
	case isArray(c):
		n, err = r.arrayLen()
	case isMap(c):
		n, err = r.mapLen()
		n *= 2
	default:
		if r.dec.Skip() != nil {
			return errTruncated
		}
		return nil
	}
	if err == nil && depth == 0 {
		err = fmt.Errorf(": nested more than %d deep", maxDepth)
	}
	for range n {
		if err != nil {
			return err
		}
		err = r.skip(depth - 1)
	}
	return err
}

// integer reads an integer of up to 64 bits.
func (r *reader) integer() (Key, error) {
	c, err := r.peek()
	if err != nil {
		return Key{}, err
	}
	if !isInt(c) {
		if msgpcode.IsBin(c) {
			return Key{}, constError(": want an integer, got bytes (digests as keys, which LMCache's controller refuses too)")
		}
		return Key{}, wrong("an integer", c)
	}
	v, err := r.dec.DecodeUint64() // two's complement of signed ones
	if err != nil {
		return Key{}, errTruncated
	}
	signed := c >= msgpcode.NegFixedNumLow || c >= msgpcode.Int8 && c <= msgpcode.Int64
	return Key{Bits: v, Negative: signed && int64(v) < 0}, nil
}

package lmcache

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strconv"

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
	s, err := r.dec.DecodeString()
	if err != nil {
		return "", errTruncated
	}
	return s, nil
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

var (
	keyType    = reflect.TypeFor[Key]()
	rawType    = reflect.TypeFor[Raw]()
	layoutType = reflect.TypeFor[Layout]()
	opType     = reflect.TypeFor[OpType]()
)

// value reads a value into v.
func (r *reader) value(v reflect.Value, f field) error {
	switch v.Type() {
	case keyType:
		k, err := r.integer()
		*v.Addr().Interface().(*Key) = k
		return err
	case rawType:
		return r.raw(v)
	case layoutType:
		return r.layout(v)
	}
	switch v.Kind() {
	case reflect.String:
		s, err := r.text()
		v.SetString(s)
		if err == nil && v.Type() == opType && s != string(Admit) && s != string(Evict) {
			err = fmt.Errorf(": %q is no operation: want admit or evict", clip(s))
		}
		return err
	case reflect.Int64:
		k, err := r.integer()
		if err == nil && !k.Negative && k.Bits > math.MaxInt64 {
			err = fmt.Errorf(": %d is more than 63 bits", k.Bits)
		}
		v.SetInt(int64(k.Bits))
		return err
	case reflect.Uint64:
		k, err := r.integer()
		if err == nil && k.Negative {
			err = fmt.Errorf(": %d is negative", int64(k.Bits))
		}
		v.SetUint(k.Bits)
		return err
	case reflect.Float64:
		return r.float(v)
	case reflect.Bool:
		c, err := r.peek()
		if err == nil && c != msgpcode.True && c != msgpcode.False {
			return wrong("a bool", c)
		}
		b, _ := r.dec.DecodeBool()
		v.SetBool(b)
		return err
	case reflect.Pointer:
		if c, err := r.peek(); err != nil || c == msgpcode.Nil {
			return at("", cmpErr(err, r.dec.Skip))
		}
		v.Set(reflect.New(v.Type().Elem()))
		return r.value(v.Elem(), f)
	case reflect.Slice:
		return r.list(v)
	case reflect.Array:
		return r.tuple(v.Len(), v.Index)
	case reflect.Map:
		return r.texts(v, f)
	}
	if s := shapeOf(v.Type()); s.tuple {
		return r.tuple(len(s.fields), func(i int) reflect.Value { return v.Field(s.fields[i].index) })
	}
	return r.fields(v, "")
}

func cmpErr(err error, next func() error) error {
	if err != nil {
		return err
	}
	if next() != nil {
		return errTruncated
	}
	return nil
}

func (r *reader) float(v reflect.Value) error {
	c, err := r.peek()
	if err != nil {
		return err
	}
	if isInt(c) {
		k, err := r.integer()
		if v.SetFloat(float64(k.Bits)); k.Negative {
			v.SetFloat(float64(int64(k.Bits)))
		}
		return err
	}
	if c != msgpcode.Float && c != msgpcode.Double {
		return wrong("a float", c)
	}
	x, err := r.dec.DecodeFloat64()
	if err != nil {
		return errTruncated
	}
	v.SetFloat(x)
	return nil
}

func (r *reader) list(v reflect.Value) error {
	n, err := r.arrayLen()
	if err != nil {
		return err
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 0)) // an empty list is not None
	zero := reflect.Zero(v.Type().Elem())
	for i := range n {
		v.Set(reflect.Append(v, zero))
		if err := r.value(v.Index(i), field{}); err != nil {
			return at("["+strconv.Itoa(i)+"]", err)
		}
	}
	return nil
}

func (r *reader) tuple(want int, element func(int) reflect.Value) error {
	n, err := r.arrayLen()
	if err != nil {
		return err
	}
	if n != want {
		return fmt.Errorf(": want %d values, got %d", want, n)
	}
	for i := range n {
		if err := r.value(element(i), field{}); err != nil {
			return at("["+strconv.Itoa(i)+"]", err)
		}
	}
	return nil
}

// texts reads a map whose keys are texts.
func (r *reader) texts(v reflect.Value, f field) error {
	n, err := r.mapLen()
	if err != nil {
		return err
	}
	v.Set(reflect.MakeMap(v.Type()))
	for range n {
		name, err := r.name(f)
		if err != nil {
			return at(": a key", err)
		}
		value := reflect.New(v.Type().Elem()).Elem()
		if err := r.value(value, field{}); err != nil {
			return at("["+clip(name)+"]", err)
		}
		v.SetMapIndex(reflect.ValueOf(name), value)
	}
	return nil
}

func (r *reader) name(f field) (string, error) {
	if c, err := r.peek(); err != nil || !f.intKeys || !isInt(c) {
		return r.text()
	}
	k, err := r.integer()
	return k.String(), err
}

// raw keeps a value as it is; None is nil.
func (r *reader) raw(v reflect.Value) error {
	start := r.rest.Size() - int64(r.rest.Len())
	if err := r.skip(maxDepth); err != nil {
		return err
	}
	b := make([]byte, r.rest.Size()-int64(r.rest.Len())-start)
	if _, err := r.rest.ReadAt(b, start); err != nil {
		return err
	}
	if b[0] != msgpcode.Nil {
		v.SetBytes(b)
	}
	return nil
}

func (r *reader) layout(v reflect.Value) error {
	n, err := r.mapLen()
	if err != nil {
		return err
	}
	all := Layout{}
	for range n {
		var p Placement
		if p.InstanceID, err = r.text(); err != nil {
			return at(": a key", err)
		}
		at2 := []any{&p.Location, &p.Tokens}
		if err := r.tuple(2, func(i int) reflect.Value { return reflect.ValueOf(at2[i]).Elem() }); err != nil {
			return at("["+clip(p.InstanceID)+"]", err)
		}
		all = append(all, p)
	}
	v.Set(reflect.ValueOf(all))
	return nil
}

// fields reads a map into a struct; ignored is a name that was read before.
func (r *reader) fields(v reflect.Value, ignored string) error {
	s := shapeOf(v.Type())
	n, err := r.mapLen()
	if err != nil {
		return err
	}
	var seen uint64
	for range n {
		name, err := r.text()
		if err != nil {
			return at(": a field's name", err)
		}
		i, ok := s.byName[name]
		if !ok || name == ignored {
			if err := r.skip(maxDepth); err != nil {
				return at("."+clip(name), err)
			}
			continue
		}
		f := s.fields[i]
		if seen>>i&1 != 0 {
			return fmt.Errorf(".%s: it is there twice", name)
		}
		seen |= 1 << i
		if err := r.value(v.Field(f.index), f); err != nil {
			return at("."+name, err)
		}
	}
	for i, f := range s.fields {
		if seen>>i&1 == 0 && !f.optional {
			return fmt.Errorf(": no field %q", f.name)
		}
	}
	return nil
}

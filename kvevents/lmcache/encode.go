package lmcache

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Append appends a message as the newest known release sends it.
func Append(dst []byte, m Message) []byte {
	buf := bytes.NewBuffer(dst)
	w := writer{msgpack.NewEncoder(buf)}
	v := reflect.ValueOf(m).Elem()
	tag := Class(m)
	if tag == "KVOpEvent" {
		tag = ""
	}
	w.fields(v, tag)
	return buf.Bytes()
}

// writer writes to memory, which does not fail.
type writer struct{ enc *msgpack.Encoder }

func (w writer) fields(v reflect.Value, tag string) {
	s := shapeOf(v.Type())
	if s.tuple {
		_ = w.enc.EncodeArrayLen(len(s.fields))
	} else if tag != "" {
		_ = w.enc.EncodeMapLen(len(s.fields) + 1)
		_ = w.enc.EncodeString("type")
		_ = w.enc.EncodeString(tag)
	} else {
		_ = w.enc.EncodeMapLen(len(s.fields))
	}
	for _, f := range s.fields {
		if !s.tuple {
			_ = w.enc.EncodeString(f.name)
		}
		w.value(v.Field(f.index), f)
	}
}

func (w writer) value(v reflect.Value, f field) {
	switch x := v.Interface().(type) {
	case Key:
		w.integer(x)
		return
	case Raw:
		if len(x) == 0 {
			x = Raw{msgpcode.Nil}
		}
		_ = w.enc.Encode(msgpack.RawMessage(x))
		return
	case Layout:
		_ = w.enc.EncodeMapLen(len(x))
		for _, p := range x {
			_ = w.enc.EncodeString(p.InstanceID)
			_ = w.enc.EncodeArrayLen(2)
			_ = w.enc.EncodeString(p.Location)
			_ = w.enc.EncodeInt(p.Tokens)
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		_ = w.enc.EncodeString(v.String())
	case reflect.Int64:
		_ = w.enc.EncodeInt(v.Int())
	case reflect.Uint64:
		_ = w.enc.EncodeUint(v.Uint())
	case reflect.Float64:
		_ = w.enc.EncodeFloat64(v.Float())
	case reflect.Bool:
		_ = w.enc.EncodeBool(v.Bool())
	case reflect.Pointer:
		if v.IsNil() {
			_ = w.enc.EncodeNil()
		} else {
			w.value(v.Elem(), f)
		}
	case reflect.Slice, reflect.Array:
		_ = w.enc.EncodeArrayLen(v.Len())
		for i := range v.Len() {
			w.value(v.Index(i), field{})
		}
	case reflect.Map:
		w.texts(v, f)
	default:
		w.fields(v, "")
	}
}

func (w writer) integer(k Key) {
	if k.Negative {
		_ = w.enc.EncodeInt(int64(k.Bits))
	} else {
		_ = w.enc.EncodeUint(k.Bits)
	}
}

func (w writer) texts(v reflect.Value, f field) {
	names := map[string]reflect.Value{}
	for it := v.MapRange(); it.Next(); {
		names[it.Key().String()] = it.Value()
	}
	_ = w.enc.EncodeMapLen(len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if n, err := strconv.ParseInt(name, 10, 64); err == nil && f.intKeys {
			_ = w.enc.EncodeInt(n)
		} else {
			_ = w.enc.EncodeString(name)
		}
		w.value(names[name], field{})
	}
}

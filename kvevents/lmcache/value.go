package lmcache

import (
	"fmt"
	"math"
	"reflect"
	"strconv"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

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

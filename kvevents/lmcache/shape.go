package lmcache

import (
	"reflect"
	"strings"
	"sync"
)

// shape is what the tags of a struct's fields say: a name, then
//
//	optional   may be left out
//	was=NAME   its name in older releases
//	intkeys    a map whose keys are integers, of which we keep the decimal text
//	tuple      on a struct's blank field: an array of its fields
type shape struct {
	fields []field
	byName map[string]int
	tuple  bool
}

type field struct {
	name, was         string
	index             int
	optional, intKeys bool
}

var shapes sync.Map // reflect.Type to *shape

func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	s := &shape{byName: map[string]int{}}
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("msg"), ",")
		f := field{name: name, index: i}
		for option := range strings.SplitSeq(options, ",") {
			was, renamed := strings.CutPrefix(option, "was=")
			switch {
			case renamed:
				f.was = was
				s.byName[was] = len(s.fields)
			case option == "optional":
				f.optional = true
			case option == "intkeys":
				f.intKeys = true
			case option == "tuple":
				s.tuple = true
			}
		}
		if name == "" && (!s.tuple || t.Field(i).Name == "_") {
			continue
		}
		s.byName[name] = len(s.fields)
		s.fields = append(s.fields, f)
	}
	got, _ := shapes.LoadOrStore(t, s)
	return got.(*shape)
}

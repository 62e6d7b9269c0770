package kvevents

// Wire says what the encoding of an event tells of its sender, besides the fields
// that are there. The zero value is an event that was not decoded: it tells
// nothing.
type Wire uint8

const (
	// WireArray and WireMap: the event was an array of positions, or a map.
	WireArray Wire = 1 << iota
	WireMap
	// WireSigned: one of its hashes was a negative integer, as half of SGLang's
	// are. WireUnsigned: one was 2^63 or more, as half of vLLM's are.
	WireSigned
	WireUnsigned
)

// integerHash notes the sign of a hash.
func (w *Wire) integerHash(v uint64, negative bool) {
	switch {
	case negative:
		*w |= WireSigned
	case v >= 1<<63:
		*w |= WireUnsigned
	}
}

// Forms returns the forms of an engine's releases, the oldest first; none for an
// engine that is not known.
func Forms(engine string) (all []Form) {
	for i := range eras {
		if sameEngine(eras[i].engine, engine) {
			all = append(all, Form{era: &eras[i]})
		}
	}
	return all
}

// Engine returns the engine's name, Since the first release that writes the form.
func (f Form) Engine() string { return f.get().engine }

// Since returns the first release that writes the form, such as "0.24.0".
func (f Form) Since() string { return f.get().release() }

// storedAlways are fields that a release puts into every BlockStored of blocks on
// the device, beyond those of always.
var storedAlways = fields(FieldMedium, FieldExtraKeys, FieldGroup, FieldSpecKind)

// Admits reports whether a release of this form can have sent an event as it came:
// as an array or a map, with hashes of that sign, with no field that the form does
// not have. An event that was put together by hand, or whose type is not known, can
// be anybody's. Fields that are not known at all are not in Event.Fields and say
// nothing.
func (f Form) Admits(ev *Event) bool {
	e := f.get()
	switch {
	case ev.Kind == Unknown || ev.Wire&(WireArray|WireMap) == 0:
		return true
	case e.maps != (ev.Wire&WireMap != 0), e.signed && ev.Wire&WireUnsigned != 0, !e.signed && ev.Wire&WireSigned != 0:
		return false
	}
	return ev.Fields&^f.Fields(ev.Kind) == 0
}

// Omits reports whether an event of blocks on the device lacks a field that
// releases of this form always send there. Arrays have no names, so that this is
// what tells an older release from a newer one with nothing to say; in maps it is
// judged of the fields only that every release of the engine has.
func (f Form) Omits(ev *Event) bool {
	if ev.Kind != BlockStored || ev.Wire&(WireArray|WireMap) == 0 || len(ev.Tokens) == 0 || len(ev.Hashes) == 0 || !onDevice(ev.Medium) {
		return false
	}
	e := f.get()
	always := e.always
	if !e.maps {
		always |= storedAlways
	}
	return always&fields(e.stored...)&^ev.Fields != 0
}

func onDevice(medium []byte) bool { return len(medium) == 0 || sameEngine("gpu", string(medium)) }

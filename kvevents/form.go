package kvevents

import (
	"fmt"
	"strconv"
	"strings"
)

// Form is how one era of engine releases writes events: arrays or maps, and
// which fields. It is a small immutable value; get one from [FormFor]. The
// zero value writes the arrays of vLLM 0.10.2.
type Form struct {
	era    *era
	digest int
}

// era is one row of the tables in testdata (vllm/server/README.md; SGLang's
// frames).
type era struct {
	engine string
	since  [3]int
	maps   bool
	noRank bool // batches of two elements
	// stored and removed are the fields in the order they are written;
	// always are those written even when they have no value.
	stored, removed []Field
	always          FieldSet
	trailing        bool // arrays: nil fields at the end are written too (seen in vLLM 0.20.2)
	saltMap         bool // arrays: a salt is a map in position 7
	signed          bool // hashes as int64
	replayTopic     bool // replay replies have a topic frame
}

var vllmAlways = fields(FieldHashes, FieldParent, FieldTokens, FieldBlockSize, FieldLoRAID, FieldMedium, FieldLoRAName)
var sglangAlways = fields(FieldHashes, FieldParent, FieldTokens, FieldBlockSize, FieldLoRAID)

var (
	vllmRemoved   = []Field{FieldHashes, FieldMedium, FieldGroup, FieldLocality, FieldOwnership}
	vllmMapFields = append(append([]Field{}, storedPositions[:]...), FieldLocality, FieldOwnership, FieldSessionID, FieldLookahead)
	sglangFields  = []Field{FieldHashes, FieldParent, FieldTokens, FieldBlockSize, FieldLoRAID, FieldMedium, FieldCacheSalt, FieldSessionID, FieldLoRAName}
)

// eras has the oldest first within an engine.
var eras = []era{
	{engine: "vllm", since: [3]int{0, 10, 2}, stored: storedPositions[:6], removed: vllmRemoved[:2], always: vllmAlways},
	{engine: "vllm", since: [3]int{0, 14}, stored: storedPositions[:7], removed: vllmRemoved[:2], always: vllmAlways},
	{engine: "vllm", since: [3]int{0, 17}, trailing: true, stored: storedPositions[:8], removed: vllmRemoved[:2], always: vllmAlways},
	{engine: "vllm", since: [3]int{0, 20}, trailing: true, stored: storedPositions[:9], removed: vllmRemoved[:3], always: vllmAlways},
	{engine: "vllm", since: [3]int{0, 22}, trailing: true, stored: storedPositions[:11], removed: vllmRemoved[:3], always: vllmAlways},
	{engine: "vllm", since: [3]int{0, 24}, stored: vllmMapFields[:11], removed: vllmRemoved[:3], always: vllmAlways, maps: true},
	{engine: "vllm", since: [3]int{0, 26}, stored: vllmMapFields[:13], removed: vllmRemoved, always: vllmAlways, maps: true, replayTopic: true},
	{engine: "vllm", since: [3]int{0, 30}, stored: vllmMapFields[:14], removed: vllmRemoved, always: vllmAlways, maps: true, replayTopic: true},
	{engine: "vllm", since: [3]int{0, 33}, stored: vllmMapFields, removed: vllmRemoved, always: vllmAlways, maps: true, replayTopic: true},

	{engine: "sglang", since: [3]int{0, 4, 6}, stored: sglangFields[:5], removed: vllmRemoved[:1], always: sglangAlways, signed: true, noRank: true},
	{engine: "sglang", since: [3]int{0, 4, 7}, stored: sglangFields[:5], removed: vllmRemoved[:1], always: sglangAlways, signed: true},
	{engine: "sglang", since: [3]int{0, 5, 9}, stored: sglangFields[:6], removed: vllmRemoved[:2], always: sglangAlways, signed: true},
	{engine: "sglang", since: [3]int{0, 5, 17}, stored: sglangFields[:6], removed: vllmRemoved[:2], always: sglangAlways, signed: true, trailing: true},
	{engine: "sglang", since: [3]int{0, 5, 18}, stored: sglangFields[:6], removed: vllmRemoved[:2], always: sglangAlways, signed: true, trailing: true, saltMap: true},
	{engine: "sglang", since: [3]int{0, 5, 20}, stored: sglangFields[:8], removed: vllmRemoved[:2], always: sglangAlways, signed: true, maps: true},
	{engine: "sglang", since: [3]int{0, 5, 22}, stored: sglangFields, removed: vllmRemoved[:2], always: sglangAlways, signed: true, maps: true, replayTopic: true},
}

// FormFor returns the form of an engine release: engine is "vllm" or
// "sglang", version such as "0.32.0" (a leading v and anything after the
// numbers are ignored). A version newer than the last change gets the newest
// form. It returns an error for another engine, an unreadable version, and a
// version before vLLM 0.10.2 or SGLang 0.4.6.
func FormFor(engine, version string) (Form, error) {
	v, err := parseVersion(version)
	if err != nil {
		return Form{}, err
	}
	var found *era
	known := false
	for i := range eras {
		if e := &eras[i]; sameEngine(e.engine, engine) {
			known = true
			if !before(v, e.since) {
				found = e
			}
		}
	}
	if !known {
		return Form{}, fmt.Errorf("kvevents: unknown engine %q, want vllm or sglang", engine)
	}
	if found == nil {
		return Form{}, fmt.Errorf("kvevents: no form for %s %s, want vllm 0.10.2 or sglang 0.4.6 at least", engine, version)
	}
	return Form{era: found}, nil
}

func sameEngine(a, b string) bool { return strings.EqualFold(a, b) }

func (e *era) release() string { return fmt.Sprintf("%d.%d.%d", e.since[0], e.since[1], e.since[2]) }

func parseVersion(s string) (v [3]int, err error) {
	rest := strings.TrimPrefix(s, "v")
	for i := range v {
		n := 0
		for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
			n++
		}
		if v[i], err = strconv.Atoi(rest[:n]); err != nil {
			return v, fmt.Errorf("kvevents: version %q, want numbers such as 0.32.0", s)
		}
		if rest = rest[n:]; !strings.HasPrefix(rest, ".") {
			if i == 0 {
				return v, fmt.Errorf("kvevents: version %q, want numbers such as 0.32.0", s)
			}
			break
		}
		if rest = rest[1:]; rest == "" || rest[0] < '0' || rest[0] > '9' {
			break
		}
	}
	return v, nil
}

func before(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

func (f Form) get() *era {
	if f.era == nil {
		return &eras[0]
	}
	return f.era
}

// WithDigests returns the form with block hashes as byte strings of n bytes
// (8 to 64; 32 for the sha256 algorithms) in place of integers, as engines
// send them with VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0. Only the last 8 bytes
// carry the hash; the others are made up from it. n = 0 means integers.
func (f Form) WithDigests(n int) Form {
	if n != 0 {
		n = min(max(n, 8), 64)
	}
	f.digest = n
	return f
}

// Maps reports whether events are maps.
func (f Form) Maps() bool { return f.get().maps }

// ReplayTopic reports whether replay replies have a topic frame.
func (f Form) ReplayTopic() bool { return f.get().replayTopic }

// Fields returns the fields that an event of the kind can have.
func (f Form) Fields(k Kind) FieldSet {
	switch k {
	case BlockStored:
		s := fields(f.get().stored...)
		if f.get().saltMap {
			s |= 1 << FieldCacheSalt
		}
		return s
	case BlockRemoved:
		return fields(f.get().removed...)
	}
	return 0
}

// String names the engine and the first release of the form.
func (f Form) String() string {
	return f.get().engine + " " + f.get().release()
}

package conform

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/kvevents"
)

// Facts are what a recording shows of its engine, for the table of what is
// supported.
type Facts struct {
	// Wire and Fields are those of the events in it.
	Wire   kvevents.Wire
	Fields kvevents.FieldSet
	// Rules names what decides hits in a truth trace: kinds of cache groups, and what
	// is on besides.
	Rules []string
}

// FactsOf reads the facts of a file of any format.
func FactsOf(file []byte) Facts {
	f := Facts{Rules: rulesOf(file)}
	messages, err := messagesOf(file)
	if engineOf(file) == "lmcache" {
		messages, err = lmcacheEvents(file)
	}
	if err != nil {
		return f // holds no messages of an engine
	}
	var dec kvevents.Decoder
	var b kvevents.Batch
	for _, m := range messages {
		payload, err := m.payload(&decodeStats{})
		if err != nil || payload == nil || dec.Decode(payload, &b) != nil {
			continue
		}
		for i := range b.Events {
			f.Wire |= b.Events[i].Wire
			f.Fields |= b.Events[i].Fields
		}
	}
	return f
}

// lmcacheEvents are the messages of a file of LMCache's events, none of another.
func lmcacheEvents(file []byte) (all []message, err error) {
	if lmcacheFile(file) != "kv-events" {
		return nil, nil
	}
	err = recording.Lines(reader(file), func(n int, line []byte) error {
		var l eventsLine
		if err := json.Unmarshal(line, &l); err != nil || l.Payload == nil {
			return err
		}
		all = append(all, message{bare: l.Payload})
		return nil
	})
	return all, err
}

// rulesOf reads the header of a truth trace.
func rulesOf(file []byte) []string {
	first, _, _ := bytes.Cut(file, []byte("\n"))
	var h recording.TraceHeader
	var s sglangHeader
	_ = json.Unmarshal(first, &h) // no header, no rules
	_ = json.Unmarshal(first, &s)
	rules := map[string]bool{}
	for _, g := range h.Groups {
		rules[strings.ReplaceAll(g.Kind, "_", " ")] = true
	}
	for what, on := range map[string]bool{
		"EAGLE": h.UseEAGLE || s.EAGLE, "partial hits": h.PartialHashHits, "offload": h.Connector != "",
		"pages": s.PageSize > 0 && s.Hash != "", "host tier": s.HostTier != nil, "format dynamo": s.Dynamo,
		"0.5.6's splits (a bound)": h.Engine == "sglang" && splitsSilently(h.Version),
		"LoRA":                     len(s.LoRANames) > 0, "freed windows (a bound)": s.SlidingWindow != nil,
		"namespaces (a bound)": strings.Contains(h.Config, "namespaces"),
	} {
		if on {
			rules[what] = true
		}
	}
	return slices.Sorted(maps.Keys(rules))
}

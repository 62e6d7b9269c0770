package conform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/kvevents/lmcache"
)

// lmcacheFile tells the files of LMCache apart by their header.
func lmcacheFile(file []byte) string {
	first, _, _ := bytes.Cut(file, []byte("\n"))
	var h struct {
		What     string              `json:"what"`
		Fields   map[string][]string `json:"fields"`
		NoneHash map[string]string   `json:"none_hash"`
	}
	_ = json.Unmarshal(first, &h) // the reader of the format says so; none_hash of a look-up is a text
	switch {
	case h.Fields != nil:
		return "messages"
	case h.What != "":
		return h.What
	case h.NoneHash != nil:
		return "hash"
	}
	return "kv-events"
}

// lmcacheResult runs the check that fits a file: of messages and events that they
// decode, of events and a controller's answers that they are predicted.
func lmcacheResult(check, name string, file []byte) *Result {
	res := &Result{File: name, Check: check}
	kind := lmcacheFile(file)
	var err error
	switch {
	case kind == "messages" && check == "decode":
		err = lmcacheMessages(res, file)
	case kind == "kv-events" && check == "decode":
		err = eventsFile(res, file, decodeEvents)
	case kind == "kv-events" && check == "truth":
		err = eventsFile(res, file, truthEvents)
	case kind == "lookup":
		err = lmcacheAnswers(res, file)
	default:
		err = fmt.Errorf("a file of LMCache's %s is not for %q", kind, check)
	}
	if err != nil {
		return Broken(check, name, err)
	}
	return res.sound()
}

// samplesOfClass is how many messages of each class a whole file has.
const samplesOfClass = 3

// lmcacheMessages checks a file of controller messages: each decodes to what LMCache
// decoded, field by field, and from 0.3.15 on is encoded to the same bytes.
// Classes that its generator could not make are apart.
func lmcacheMessages(res *Result, file []byte) error {
	var h struct {
		LMCache string              `json:"lmcache"`
		Fields  map[string][]string `json:"fields"`
	}
	seen := map[string]int{}
	err := recording.Lines(reader(file), func(n int, line []byte) error {
		if n == 1 {
			return json.Unmarshal(line, &h)
		}
		var l struct {
			Type    string          `json:"type"`
			Payload []byte          `json:"payload_b64"`
			Decoded json.RawMessage `json:"decoded"`
			Refused string          `json:"refused"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		if _, ok := h.Fields[l.Type]; !ok {
			return fmt.Errorf("class %q is not in the header", l.Type)
		}
		if l.Refused != "" && l.Payload == nil {
			seen[l.Type] = samplesOfClass
			res.Apart++
			res.note("%s was not made: %s", l.Type, l.Refused)
			return nil
		}
		seen[l.Type]++
		if d := messageCase(l.Type, l.Payload, l.Decoded); d != nil {
			d.Where = fmt.Sprintf("%s at line %d%s", l.Type, n, d.Where)
			res.fail(*d)
		} else {
			res.pass()
		}
		return nil
	})
	if err != nil {
		return err
	}
	res.What = fmt.Sprintf("messages of LMCache %s, %d classes", h.LMCache, len(seen))
	var missing []string
	for class, fields := range h.Fields {
		if n := samplesOfClass - seen[class]; len(fields) > 0 && n > 0 {
			missing = append(missing, fmt.Sprintf("%s: %d samples", class, n))
		}
	}
	res.incomplete(missing)
	return nil
}

// messageCase returns nil when a message is read as LMCache reads it.
func messageCase(class string, payload []byte, decoded json.RawMessage) *Difference {
	m, err := lmcache.DecodeAs(class, payload)
	if err != nil {
		return &Difference{Want: "a message", Got: err.Error()}
	}
	again := lmcache.Append(nil, m)
	ours, err := msgpackTree(again)
	if err != nil {
		return &Difference{Want: "a message", Got: err.Error()}
	}
	var theirs any
	d := json.NewDecoder(bytes.NewReader(decoded))
	d.UseNumber()
	if err := d.Decode(&theirs); err != nil {
		return &Difference{Where: ", decoded", Want: "JSON", Got: err.Error()}
	}
	old := renewed(theirs)
	if !reflect.DeepEqual(ours, canonical(theirs)) {
		return &Difference{Want: fmt.Sprint(canonical(theirs)), Got: fmt.Sprint(ours)}
	}
	if !old && !bytes.Equal(again, payload) {
		return &Difference{Where: ", encoded again", Want: fmt.Sprintf("%x", payload), Got: fmt.Sprintf("%x", again)}
	}
	return nil
}

// renewed gives a message to 0.3.9 the fields that later releases have, and reports
// whether it had others.
func renewed(v any) (old bool) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			old = renewed(x) || old
		}
	case map[string]any:
		if url, ok := v["distributed_url"]; ok {
			delete(v, "distributed_url")
			v["peer_init_url"], old = url, true
		}
		if class := fmt.Sprint(v["type"]); class == "KVAdmitMsg" || class == "KVEvictMsg" {
			if _, ok := v["seq_num"]; !ok {
				v["seq_num"], old = json.Number("0"), true
			}
		}
		for _, x := range v {
			old = renewed(x) || old
		}
	}
	return old
}

// msgpackTree reads any value.
func msgpackTree(b []byte) (any, error) {
	var v any
	if err := msgpack.Unmarshal(b, &v); err != nil {
		return nil, err
	}
	return canonical(v), nil
}

// canonical writes numbers as text, floats with a point, so that trees of JSON and of
// msgpack can be compared.
func canonical(v any) any {
	switch v := v.(type) {
	case json.Number:
		if strings.ContainsAny(string(v), ".eE") {
			f, err := v.Float64()
			if err != nil {
				return err
			}
			return f
		}
		return string(v)
	case float64, string, bool, nil:
		if s, ok := v.(string); ok {
			return strconv.Quote(s)
		}
		return v
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = canonical(x)
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[k] = canonical(x)
		}
		return out
	}
	return fmt.Sprint(v) // the integers of msgpack
}

// lmcacheAnswers checks a file of what a controller was sent and answered.
func lmcacheAnswers(res *Result, file []byte) error {
	var run *answersRun
	err := recording.Lines(reader(file), func(n int, line []byte) error {
		if run == nil {
			var err error
			run, err = newAnswersRun(line, res)
			return err
		}
		return run.next(n, line)
	})
	if err == nil && run == nil {
		err = errors.New("empty file")
	}
	if err == nil && run.sent == 0 {
		err = errors.New("no messages")
	}
	if err == nil && !run.ended {
		res.incomplete([]string{"the counters at the end"})
	}
	return err
}

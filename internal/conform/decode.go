package conform

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/kvevents"
)

// Counts is what a file of messages decoded to.
type Counts struct {
	Batches       int `json:"batches"`
	Stored        int `json:"BlockStored"`
	Removed       int `json:"BlockRemoved"`
	Cleared       int `json:"AllBlocksCleared"`
	StoredHashes  int `json:"stored_hashes"`
	RemovedHashes int `json:"removed_hashes"`
}

// decodeStats is what Decode learns of a file.
type decodeStats struct {
	Counts
	unknownTypes  map[string]int
	unknownFields int
	malformed     [kvevents.NumReasons]int
	fields        map[string]kvevents.FieldSet
	endMarkers    int
}

// Decode checks that every message of a session, replay or truth trace decodes whole.
func Decode(name string, r io.Reader) (*Result, Counts) {
	const check = "decode"
	all, err := io.ReadAll(r)
	if err != nil {
		return Broken(check, name, err), Counts{}
	}
	if engineOf(all) == "lmcache" {
		return lmcacheResult(check, name, all), Counts{}
	}
	messages, err := messagesOf(all)
	if err != nil {
		return Broken(check, name, err), Counts{}
	}
	res := &Result{File: name, Check: check}
	st := decodeStats{unknownTypes: map[string]int{}, fields: map[string]kvevents.FieldSet{}}
	var dec kvevents.Decoder
	var batch kvevents.Batch
	for _, m := range messages {
		payload, err := m.payload(&st)
		if err == nil && payload != nil {
			err = dec.Decode(payload, &batch)
		}
		switch {
		case err != nil:
			res.fail(Difference{Where: m.where, Want: "a message", Got: err.Error()})
		case payload == nil:
			res.pass() // an end marker
		default:
			st.add(&batch)
			if wrong := m.wrong(&batch); wrong != "" {
				res.fail(Difference{Where: m.where, Want: "events as the engine makes them", Got: wrong})
			} else {
				res.pass()
			}
		}
	}
	if n := len(messages); n > 0 && messages[n-1].judge != nil {
		messages[n-1].judge.note(res)
	}
	st.describe(res)
	return res.sound(), st.Counts
}

// message is one recorded message on its way to the decoder.
type message struct {
	where  string
	frames [][]byte // nil where the recording keeps the payload alone
	bare   []byte
	reply  bool // came over the replay socket
	// judge, if set, says what is wrong with each event beyond its form.
	judge *sglangEvents
}

// wrong judges a decoded message.
func (m message) wrong(b *kvevents.Batch) string {
	if len(b.Malformed) > 0 {
		return fmt.Sprintf("%d malformed events: %s", len(b.Malformed), b.Malformed[0].Reason)
	}
	if m.judge == nil {
		return ""
	}
	if b.UnknownTypes+b.UnknownFields > 0 && !m.judge.scheme.Assumed() {
		return fmt.Sprintf("%d events of unknown type, %d unknown fields, in a release that is known", b.UnknownTypes, b.UnknownFields)
	}
	for i := range b.Events {
		if wrong := m.judge.judge(&b.Events[i]); wrong != "" {
			return fmt.Sprintf("event %d: %s", i, wrong)
		}
	}
	return ""
}

// payload takes the payload out of the frames; nil for an end marker.
func (m message) payload(st *decodeStats) ([]byte, error) {
	if m.frames == nil {
		return m.bare, nil
	}
	if m.reply {
		reply, err := kvevents.ParseReplay(m.frames)
		if err == nil && reply.End {
			st.endMarkers++
			return nil, nil
		}
		return reply.Payload, err
	}
	live, err := kvevents.ParseMessage(m.frames)
	return live.Payload, err
}

func (st *decodeStats) add(b *kvevents.Batch) {
	st.Batches++
	st.unknownFields += b.UnknownFields
	for _, m := range b.Malformed {
		st.malformed[m.Reason]++
	}
	for i := range b.Events {
		e := &b.Events[i]
		st.fields[e.Kind.String()] |= e.Fields
		switch e.Kind {
		case kvevents.BlockStored:
			st.Stored++
			st.StoredHashes += len(e.Hashes)
		case kvevents.BlockRemoved:
			st.Removed++
			st.RemovedHashes += len(e.Hashes)
		case kvevents.AllBlocksCleared:
			st.Cleared++
		default:
			st.unknownTypes[string(e.Type)]++
		}
	}
}

func (st *decodeStats) describe(res *Result) {
	res.What = fmt.Sprintf("%d batches: %d BlockStored of %d hashes, %d BlockRemoved of %d, %d AllBlocksCleared",
		st.Batches, st.Stored, st.StoredHashes, st.Removed, st.RemovedHashes, st.Cleared)
	for _, kind := range []kvevents.Kind{kvevents.BlockStored, kvevents.BlockRemoved} {
		if f := st.fields[kind.String()]; f.Len() > 0 {
			res.note("%s fields: %s", kind, f)
		}
	}
	if st.endMarkers > 0 {
		res.note("end markers: %d", st.endMarkers)
	}
	if st.unknownFields > 0 {
		res.note("fields that are not known here, skipped: %d", st.unknownFields)
	}
	for t, n := range st.unknownTypes {
		res.note("events of unknown type %q, skipped: %d", t, n)
	}
	var reasons []string
	for reason, n := range st.malformed {
		if n > 0 {
			reasons = append(reasons, fmt.Sprintf("%s: %d", kvevents.Reason(reason), n))
		}
	}
	if len(reasons) > 0 {
		res.note("malformed events: %s", strings.Join(reasons, ", "))
	}
	slices.Sort(res.Notes)
}

// messagesOf collects the messages of a file in either format.
func messagesOf(file []byte) ([]message, error) {
	if engineOf(file) == "sglang" && bytes.Contains(file, []byte("payload_b64")) {
		return sglangMessages(file)
	}
	if isTrace(file) {
		t, err := recording.ReadTrace(reader(file))
		if err != nil {
			return nil, err
		}
		var out []message
		for i := range t.Ops {
			if op := &t.Ops[i]; op.Op == "events" {
				out = append(out, message{where: fmt.Sprintf("line %d", op.Line), bare: op.Payload})
			}
		}
		return out, nil
	}
	s, err := recording.ReadSession(reader(file))
	if err != nil {
		return nil, err
	}
	if engineOf(file) == "sglang" || len(s.Ops) > 0 && s.Ops[0].Op == "publisher" {
		return sglangFrames(file, s)
	}
	var out []message
	for i := range s.Ops {
		op := &s.Ops[i]
		m := message{where: fmt.Sprintf("line %d", op.Line), frames: op.Frames, bare: op.Payload}
		switch op.Op {
		case "event":
		case "replay_reply", "replay_reply_after_second_send":
			m.reply = true
		default:
			continue
		}
		out = append(out, m)
	}
	return out, nil
}

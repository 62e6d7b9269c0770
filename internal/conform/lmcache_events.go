package conform

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/recorded"
	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/kvevents"
)

// eventsLine is a message that LMCache's connector handed to vLLM: in process the
// whole chunks of a prompt, each with the one before as its parent; multiprocess those
// from a token to another, and the removal of the first of them.
type eventsLine struct {
	Connector string  `json:"connector"`
	Algorithm string  `json:"algorithm"`
	ChunkSize int     `json:"chunk_size"`
	Tokens    []int64 `json:"tokens"`
	MediumIs  string  `json:"medium_is"`
	From      int     `json:"stored_from"`
	To        int     `json:"stored_to"`
	Ints      *bool   `json:"int_block_hashes"`
	Payload   []byte  `json:"payload_b64"`
	Refused   string  `json:"refused"`
}

func (l *eventsLine) multiprocess() bool { return l.Connector == "LMCacheMPConnector" }

// eventsFile checks a file of LMCache's events in vLLM's stream with one of the checks
// below. What vLLM refused to encode is apart.
func eventsFile(res *Result, file []byte, check func(*lmcacheHeader, *eventsLine) (judged bool, d *Difference)) error {
	var h lmcacheHeader
	forms := map[string]int{}
	python := 0
	err := recording.Lines(reader(file), func(n int, line []byte) error {
		if n == 1 {
			if err := json.Unmarshal(line, &h); err != nil || h.LMCache == "" || h.VLLM == "" {
				return errors.Join(err, errors.New("no header with the releases of LMCache and vLLM"))
			}
			return nil
		}
		var l eventsLine
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		if l.Connector == "LMCacheMPConnector" && l.Refused != "" && l.Tokens == nil { // a release without it
			res.Apart++
			res.note("%s: %s", l.Connector, l.Refused)
			return nil
		}
		if l.Connector != "LMCacheConnectorV1" && !l.multiprocess() || l.ChunkSize < 1 || l.multiprocess() == (l.Ints == nil) {
			return fmt.Errorf("connector %q with chunks of %d tokens is not of this format", l.Connector, l.ChunkSize)
		}
		forms[fmt.Sprint(l.Connector, " ", l.Algorithm, " ", l.ChunkSize)]++
		if l.Payload == nil && l.Refused != "" {
			res.Apart++
			res.note("line %d, medium %s: vLLM refuses it: %s", n, l.MediumIs, l.Refused)
			return nil
		}
		judged, d := check(&h, &l)
		switch {
		case d != nil:
			d.Where = fmt.Sprintf("line %d, %s, %s, chunks of %d%s", n, l.Connector, l.Algorithm, l.ChunkSize, d.Where)
			res.fail(*d)
		case judged:
			res.pass()
		default:
			res.Apart++
			python++
		}
		return nil
	})
	if err != nil {
		return err
	}
	res.What = fmt.Sprintf("events of LMCache %s in vLLM %s, %d forms", h.LMCache, h.VLLM, len(forms))
	if python > 0 {
		res.note("%d messages with Python's own hash, which is not computed: the rest is as it must be", python)
	}
	var missing []string
	for form, n := range forms { // text or tensor; integers or digests
		if n < 2 {
			missing = append(missing, "the other line of "+form)
		}
	}
	res.incomplete(missing)
	return nil
}

// hasher returns the hasher of a line; nil for Python's own hash.
func (l *eventsLine) hasher(h *lmcacheHeader) (*blockhash.Hasher, error) {
	if l.Algorithm == "builtin" {
		return nil, nil
	}
	kind := "chunks"
	if l.multiprocess() {
		kind = "token_hasher"
	}
	return h.hasher(&lmcacheLine{Kind: kind, Algorithm: l.Algorithm, ChunkSize: l.ChunkSize})
}

// decodeEvents compares a message with the chunks of its prompt.
func decodeEvents(h *lmcacheHeader, l *eventsLine) (judged bool, d *Difference) {
	var b kvevents.Batch
	if err := new(kvevents.Decoder).Decode(l.Payload, &b); err != nil {
		return false, &Difference{Want: "a message", Got: err.Error()}
	}
	beside, err := blockhash.SchemeFor("vllm", h.VLLM)
	if err != nil {
		return false, &Difference{Want: "a release of vLLM", Got: err.Error()}
	}
	if len(b.Malformed) > 0 || !beside.Assumed() && b.UnknownTypes+b.UnknownFields > 0 {
		return false, &Difference{Want: "known events", Got: fmt.Sprintf("%v, %d of unknown type, %d unknown fields", b.Malformed, b.UnknownTypes, b.UnknownFields)}
	}
	hasher, err := l.hasher(h)
	if err != nil {
		return false, &Difference{Want: "a hasher", Got: err.Error()}
	}
	want := l.events(hasher)
	if len(b.Events) != len(want) {
		return false, &Difference{Want: fmt.Sprintf("%d events", len(want)), Got: fmt.Sprint(len(b.Events))}
	}
	for i := range b.Events {
		got := chunkOf(&b.Events[i])
		if hasher == nil { // Python's hash: each parent is the chunk before
			want[i].hash = got.hash
			if i > 0 {
				want[i].parent = want[i-1].hash
			}
		}
		if w, g := fmt.Sprint(want[i]), fmt.Sprint(got); w != g {
			return false, &Difference{Where: fmt.Sprintf(", event %d", i), Want: w, Got: g}
		}
	}
	return hasher != nil, nil
}

// chunkEvent is what an event says.
type chunkEvent struct {
	kind, medium string
	hash, parent []uint64
	digest       int // length of the hash as sent, 0 = integer
	size         int
	tokens       []uint32
}

func chunkOf(e *kvevents.Event) chunkEvent {
	c := chunkEvent{kind: e.Kind.String(), medium: string(e.Medium), hash: e.Hashes, digest: e.HashBytes, size: e.BlockSize, tokens: e.Tokens}
	if e.HasParent {
		c.parent = []uint64{e.Parent}
	}
	if e.TokenForm != kvevents.TokensPlain || e.HasGroup || e.HasLoRAID || len(e.LoRAName) > 0 {
		c.kind += " of another form"
	}
	return c
}

// events are what the connector must announce.
func (l *eventsLine) events(h *blockhash.Hasher) (all []chunkEvent) {
	tokens, _ := recorded.Tokens(l.Tokens)
	c := chunkEvent{kind: "BlockStored", medium: "cpu", size: l.ChunkSize}
	from, to := 0, len(tokens)/l.ChunkSize*l.ChunkSize
	if l.multiprocess() {
		from, to = l.From, l.To
		if c.medium = "CPU"; !*l.Ints {
			c.digest = 32
		}
	}
	var keys []uint64
	if h != nil {
		keys, _ = h.AppendKeys(nil, &blockhash.Prompt{Tokens: tokens})
	}
	for start := from; start < to && start+l.ChunkSize <= len(tokens); start += l.ChunkSize {
		i := start / l.ChunkSize
		c.tokens = tokens[start : start+l.ChunkSize]
		if i < len(keys) {
			if c.hash = keys[i : i+1]; i > 0 {
				c.parent = keys[i-1 : i]
			}
		}
		all = append(all, c)
	}
	if l.multiprocess() && len(all) > 0 {
		all = append(all, chunkEvent{kind: "BlockRemoved", medium: c.medium, digest: c.digest, hash: all[0].hash})
	}
	return all
}

// truthEvents lets an Atlas follow a message and compares what it then says LMCache
// adds to a prompt with the chunks that were announced.
func truthEvents(h *lmcacheHeader, l *eventsLine) (judged bool, d *Difference) {
	if judged, d = decodeEvents(h, l); d != nil {
		return judged, d
	}
	a, err := kvatlas.New(kvatlas.Options{})
	if err != nil {
		return false, &Difference{Want: "an atlas", Got: err.Error()}
	}
	w := kvatlas.Worker{
		Name: "w", Release: h.VLLM, BlockSize: 16,
		LMCache: &kvatlas.LMCache{Release: h.LMCache, Multiprocess: l.multiprocess(), Hash: l.Algorithm, ChunkTokens: l.ChunkSize},
	}
	if h.Seed != nil {
		w.Seed = blockhash.SeedText(*h.Seed)
	}
	if err = a.AddWorker(w); err == nil {
		err = a.Apply("w", l.Payload)
	}
	var m kvatlas.Match
	req := kvatlas.Request{}
	req.Prompt.Tokens, _ = recorded.Tokens(l.Tokens)
	if err == nil {
		err = a.Match(&req, &m)
	}
	if err != nil {
		return false, &Difference{Want: "a match", Got: err.Error()}
	}
	want := len(l.Tokens) / l.ChunkSize * l.ChunkSize
	if l.multiprocess() { // the first chunk of those stored was removed
		want = 0
	}
	if want == len(l.Tokens) {
		want--
	}
	if got := m.Workers[0]; got.External != want || got.Usable != 0 || got.Combined != 0 {
		return false, &Difference{Want: fmt.Sprintf("%d tokens external, none of the device", want), Got: fmt.Sprintf("%d, %d", got.External, got.Usable)}
	}
	return judged, nil
}

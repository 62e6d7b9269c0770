package conform

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/recorded"
	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
)

// sglangHeader is the first line of a truth trace of SGLang's cache.
type sglangHeader struct {
	Engine        string            `json:"engine"`
	Version       string            `json:"version"`
	Config        string            `json:"config"`
	PageSize      int               `json:"page_size"`
	EAGLE         bool              `json:"is_eagle"`
	Dynamo        bool              `json:"dynamo_format"`
	Hash          string            `json:"hash"`
	SlidingWindow *int              `json:"sliding_window"`
	HostTier      *string           `json:"host_tier"`
	LoRANames     map[string]string `json:"lora_names"`
}

// sglangQuery is a look-up with the cache's own answers.
type sglangQuery struct {
	ID        string  `json:"id"`
	Tokens    []int64 `json:"tokens"`
	Extend    *string `json:"extend"`
	Take      int     `json:"take"`
	ExtraKey  *string `json:"extra_key"`
	CacheSalt *string `json:"cache_salt"`
	// Hit is what the cache matched, Served what a request is served (one token
	// less is looked up), Host what lies on the host beyond.
	Hit    int  `json:"hit_tokens"`
	Served *int `json:"served_hit_tokens"`
	Host   *int `json:"host_hit_tokens"`
}

// sglangTruth checks a truth trace of SGLang's cache. What its stream cannot tell
// gives a bound: namespaces by extra key share hashes, pages hashed without
// their prefix can lie anywhere, and freed windows are not announced (all too high);
// 0.5.6 does not announce again what it split (too low).
func sglangTruth(name string, file []byte) *Result {
	const check = "truth"
	res := &Result{File: name, Check: check}
	var run *sglangRun
	err := recording.Lines(reader(file), func(n int, line []byte) error {
		if run == nil {
			var err error
			run, err = newSGLangRun(line, res, !bytes.Contains(file, []byte(`"extra_key":"`)) && !bytes.Contains(file, []byte(`"cache_salt":"`)))
			return err
		}
		op, err := run.order.next(line)
		if err != nil {
			return err
		}
		switch op.Op {
		case "events":
			return run.events(n, op.Payload)
		case "query":
			var q sglangQuery
			if err := json.Unmarshal(line, &q); err != nil {
				return err
			}
			return run.query(n, &q)
		}
		return nil // what the engine did; its events follow
	})
	if err == nil && run == nil {
		err = errors.New("empty file")
	}
	if err != nil {
		return Broken(check, name, err)
	}
	run.judge.note(res)
	return res.sound()
}

// sglangOp is a line of a truth trace.
type sglangOp struct {
	Op      string `json:"op"`
	ID      string `json:"id"`
	Seq     *int64 `json:"seq"`
	Payload []byte `json:"payload_b64"`
}

// sglangOrder follows the numbers of messages and queries: a trace with a hole in
// it proves nothing.
type sglangOrder struct {
	events, queries int64
	silent          bool // look-ups announce nothing
	acted           bool // something that can was done since the last message
}

func (o *sglangOrder) next(line []byte) (op sglangOp, err error) {
	if err := json.Unmarshal(line, &op); err != nil {
		return op, err
	}
	switch op.Op {
	case "events":
		if op.Seq == nil || *op.Seq != o.events || len(op.Payload) == 0 {
			return op, fmt.Errorf("want message %d", o.events)
		}
		if o.events > 0 && o.silent && !o.acted {
			return op, fmt.Errorf("message %d, though nothing was done since the last", o.events)
		}
		o.events++
		o.acted = false
	case "query":
		if op.ID != fmt.Sprintf("q%d", o.queries) {
			return op, fmt.Errorf("query %q, want q%d", op.ID, o.queries)
		}
		o.queries++
	case "insert", "load_back", "evict", "evict_window", "reset":
		o.acted = true
	default:
		return op, fmt.Errorf("op %q is not one of a truth trace", op.Op)
	}
	return op, nil
}

type sglangRun struct {
	header  sglangHeader
	order   sglangOrder
	judge   *sglangEvents
	batch   kvevents.Batch
	res     *Result
	atlas   *kvatlas.Atlas
	prompts recording.Prompts
	match   kvatlas.Match
	over    bool // predictions may be too high
	under   bool // or too low
}

func newSGLangRun(line []byte, res *Result, plainOnly bool) (*sglangRun, error) {
	r := &sglangRun{res: res}
	if err := json.Unmarshal(line, &r.header); err != nil {
		return nil, err
	}
	h := &r.header
	var err error
	if r.judge, err = newSGLangEvents(*h); err != nil {
		return nil, err
	}
	r.order.silent = r.judge.silent()
	res.What = fmt.Sprintf("%s %s, %s, %s", h.Engine, h.Version, h.Config, h.Hash)
	w := kvatlas.Worker{
		Name: "engine", Engine: h.Engine, Release: h.Version, BlockSize: h.PageSize, DynamoEvents: h.Dynamo, PlainOnly: plainOnly,
		Cache: radix.ProfileOptions{Eagle: h.EAGLE},
	}
	if r.atlas, err = kvatlas.New(kvatlas.Options{}); err != nil {
		return nil, err
	}
	if err := r.atlas.AddWorker(w); err != nil {
		return nil, err
	}
	r.over = h.SlidingWindow != nil
	stats, _, err := r.atlas.Stats("engine")
	r.under = stats.Limitation != ""
	if r.under {
		res.note("%s", stats.Limitation)
	}
	return r, err
}

// events applies a message whose events are what the cache must announce.
func (r *sglangRun) events(line int, payload []byte) error {
	if err := new(kvevents.Decoder).Decode(payload, &r.batch); err != nil {
		return err
	}
	if wrong := (message{judge: r.judge}).wrong(&r.batch); wrong != "" {
		r.res.fail(Difference{Where: fmt.Sprintf("message at line %d", line), Want: "events of this cache", Got: wrong})
	}
	return r.atlas.ApplyBatch("engine", &r.batch)
}

func (r *sglangRun) query(line int, q *sglangQuery) error {
	tokens, err := r.prompts.Add(&recording.TraceOp{ID: q.ID, Tokens: q.Tokens, Extend: q.Extend, Take: q.Take, Line: line})
	if err != nil {
		return err
	}
	req := kvatlas.Request{}
	req.Prompt.Tokens, req.Prompt.WideTokens = recorded.Tokens(tokens)
	if q.CacheSalt != nil {
		req.Prompt.CacheSalt = *q.CacheSalt
	}
	if q.ExtraKey != nil {
		req.Prompt.ExtraKey = *q.ExtraKey
		for id, lora := range r.header.LoRANames {
			if strings.HasSuffix(*q.ExtraKey, id) {
				req.Prompt.LoRA = loraNamed(lora)
			}
		}
	}
	if err := r.atlas.Match(&req, &r.match); err != nil {
		return err
	}
	w := &r.match.Workers[0]
	page := r.header.PageSize
	got, want := sglangHit{w.Prefix, w.Usable, w.Combined*page - w.Prefix, w.External}, sglangHit{hit: q.Hit, served: w.Usable}
	if q.Served != nil {
		want.served = *q.Served
	}
	if q.Host != nil { // what of it is served ends with the last whole page before the last token
		want.host = *q.Host
		want.external = max(min(q.Hit+*q.Host, (len(tokens)-1)/page*page)-want.served, 0)
	} else {
		got.host = 0
	}
	over := r.over || w.UpperBound
	switch {
	case got == want:
		r.res.pass()
	case over && got.hit >= want.hit && got.served >= want.served, r.under && got.hit <= want.hit && got.served <= want.served:
		r.res.pass()
		r.res.Bound++
	default:
		r.res.fail(Difference{
			Where: fmt.Sprintf("query %s at line %d", q.ID, line), Want: want.String(), Got: got.String(),
			About: fmt.Sprintf("%d tokens %s, extra key %v, salt %v", len(tokens), clip(tokens), q.ExtraKey != nil, q.CacheSalt != nil),
		})
	}
	return nil
}

type sglangHit struct{ hit, served, host, external int }

func (h sglangHit) String() string {
	return fmt.Sprintf("%d hit tokens, %d served, %d on the host, of which %d served", h.hit, h.served, h.host, h.external)
}

// sglangMessages collects the messages of a truth trace.
func sglangMessages(file []byte) (out []message, err error) {
	var order sglangOrder
	var judge *sglangEvents
	err = recording.Lines(reader(file), func(n int, line []byte) error {
		if judge == nil {
			var h sglangHeader
			err := json.Unmarshal(line, &h)
			if err == nil {
				judge, err = newSGLangEvents(h)
				order.silent = err == nil && judge.silent()
			}
			return err
		}
		op, err := order.next(line)
		if err == nil && op.Op == "events" {
			out = append(out, message{where: fmt.Sprintf("line %d", n), bare: op.Payload, judge: judge})
		}
		return err
	})
	return out, err
}

// sglangHash checks a file of page hashes.
func sglangHash(name string, file []byte) *Result {
	const check = "hash"
	res := &Result{File: name, Check: check}
	var scheme blockhash.Scheme
	cases := 0
	names := map[string]bool{}
	err := recording.Lines(reader(file), func(n int, line []byte) error {
		if n == 1 {
			var h sglangHeader
			err := json.Unmarshal(line, &h)
			if err == nil {
				res.What = fmt.Sprintf("%s %s", h.Engine, h.Version)
				scheme, err = blockhash.SchemeFor(h.Engine, h.Version)
			}
			return err
		}
		var c sglangCase
		if err := json.Unmarshal(line, &c); err != nil {
			return err
		}
		if c.Name == "" || c.PageSize < 1 {
			return fmt.Errorf("case %q with pages of %d tokens: want a name and a size", c.Name, c.PageSize)
		}
		cases++
		names[c.Name] = true
		if c.Refused != "" {
			res.Apart++
			res.note("case %q: the cache refused it: %s", c.Name, c.Refused)
		} else if d := c.check(scheme); d != nil {
			d.Where = fmt.Sprintf("case %q%s", c.Name, d.Where)
			res.fail(*d)
		} else {
			res.pass()
		}
		return nil
	})
	if err == nil && cases == 0 {
		err = errors.New("no cases")
	}
	if err != nil {
		return Broken(check, name, err)
	}
	res.What += fmt.Sprintf(", %d prompts", cases)
	res.incomplete(sglangMissing(names))
	return res
}

var (
	sglangGrid   = regexp.MustCompile(`^page-(\d+)-(.+)$`)
	sglangNumber = regexp.MustCompile(`^(.*-)(\d+)$`)
)

// sglangMissing returns the cases that are missing from what is regular: the same kinds for
// every page size, and numbers without a hole.
func sglangMissing(names map[string]bool) (missing []string) {
	sizes, kinds := map[string]bool{}, map[string]bool{}
	for name := range names {
		if m := sglangGrid.FindStringSubmatch(name); m != nil {
			sizes[m[1]], kinds[m[2]] = true, true
		} else if m := sglangNumber.FindStringSubmatch(name); m != nil && !strings.HasSuffix(m[1], "page-") && !strings.HasSuffix(m[1], "to-") {
			n, err := strconv.Atoi(m[2])
			if before := fmt.Sprint(m[1], n-1); err == nil && n > 0 && !names[before] {
				missing = append(missing, before)
			}
		}
	}
	for size := range sizes {
		for kind := range kinds {
			if name := "page-" + size + "-" + kind; !names[name] {
				missing = append(missing, name)
			}
		}
	}
	return missing
}

// sglangCase is one prompt with the digests of its pages and their values in
// events.
type sglangCase struct {
	Name     string   `json:"name"`
	PageSize int      `json:"page_size"`
	EAGLE    bool     `json:"eagle"`
	Mode     string   `json:"mode"`
	Tokens   []int64  `json:"tokens"`
	ExtraKey string   `json:"extra_key"`
	Salt     string   `json:"cache_salt"`
	LoRA     string   `json:"lora_name"`
	Digests  []string `json:"digests"`
	Events   []string `json:"events"`
	Refused  string   `json:"refused"` // by the cache; there is no answer then
}

func (c *sglangCase) check(scheme blockhash.Scheme) *Difference {
	h, err := blockhash.New(blockhash.Options{Scheme: scheme, BlockSize: c.PageSize, EAGLE: c.EAGLE, DynamoEvents: c.Mode == "dynamo"})
	if err != nil {
		return &Difference{Want: "a hasher", Got: err.Error()}
	}
	p := &blockhash.Prompt{CacheSalt: c.Salt, ExtraKey: c.ExtraKey}
	p.Tokens, p.WideTokens = recorded.Tokens(c.Tokens)
	if c.LoRA != "" {
		p.LoRA = loraNamed(c.LoRA)
	}
	want := recording.HashResult{Hashes: make([]string, len(c.Events))}
	for _, e := range c.Events { // signed on the wire
		v, err := strconv.ParseInt(e, 10, 64)
		if err != nil {
			return &Difference{Want: "an integer", Got: e}
		}
		want.Wire = append(want.Wire, strconv.FormatUint(uint64(v), 10))
	}
	keys, err := h.AppendKeys(nil, p)
	if d := sameKeys(want, keys, err, ""); d != nil {
		return d
	}
	var chain blockhash.Chain
	if err := h.Start(&chain, p); err != nil {
		return &Difference{Where: ", lazily", Want: "a chain", Got: err.Error()}
	}
	for i := range c.Events {
		key, _ := chain.Next()
		if key != keys[i] {
			return &Difference{Where: fmt.Sprintf(", lazily, page %d", i), Want: fmt.Sprint(keys[i]), Got: fmt.Sprint(key)}
		}
		if i < len(c.Digests) && hex.EncodeToString(chain.Digest()) != c.Digests[i] {
			return &Difference{Where: fmt.Sprintf(", page %d", i), Want: c.Digests[i], Got: hex.EncodeToString(chain.Digest())}
		}
	}
	return nil
}

package conform

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/recorded"
	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
)

// Truth checks a truth trace of the engine's cache manager: an index that sees
// only the published events predicts the tokens that each look-up hit, and every prompt's
// last hash is the engine's.
//
// Where the root was drawn at random, the trace is run twice: with the root
// that it notes, and by content, as a router must that cannot know it (the
// second only for models of one full-attention group, where the events give
// every block's place).
func Truth(name string, r io.Reader) *Result {
	const check = "truth"
	file, err := io.ReadAll(r)
	if err != nil {
		return Broken(check, name, err)
	}
	switch engineOf(file) {
	case "sglang":
		return sglangTruth(name, file)
	case "lmcache":
		return lmcacheResult(check, name, file)
	}
	t, err := recording.ReadTrace(reader(file))
	if err != nil {
		return Broken(check, name, err)
	}
	res := &Result{File: name, Check: check}
	w, err := TraceWorker(t)
	if err != nil {
		return Broken(check, name, err)
	}
	random, err := randomRoot(w, t)
	if err != nil {
		return Broken(check, name, err)
	}
	res.What = fmt.Sprintf("%s %s, %s, %s", t.Engine, t.Version, t.Config, t.HashAlgo)
	if random {
		res.What += " from a random root"
	}
	exact := w
	if random {
		exact.Seed = blockhash.SeedRoot(t.Root)
	}
	run := traceRun{trace: t, res: res}
	if err := run.do(exact); err != nil {
		return Broken(check, name, err)
	}
	if random && len(t.Groups) == 1 && t.Groups[0].Kind == "full_attention" {
		w.PlainOnly = plainOnly(t)
		run := traceRun{trace: t, res: res, how: ", by content"}
		if err := run.do(w); err != nil {
			return Broken(check, name, err)
		}
	}
	return res.sound()
}

// TraceWorker describes the engine of a trace; its seed is left as configured.
func TraceWorker(t *recording.Trace) (kvatlas.Worker, error) {
	algorithm, err := blockhash.ParseAlgorithm(t.HashAlgo)
	if err != nil {
		return kvatlas.Worker{}, err
	}
	w := kvatlas.Worker{
		Name: "engine", Engine: t.Engine, Release: t.Version, Algorithm: algorithm, BlockSize: t.HashBlockSize,
		Cache: radix.ProfileOptions{
			HashUnit: t.HashBlockSize, SchedulerBlock: t.SchedulerBlockSize, Eagle: t.UseEAGLE,
			Lookahead: t.Lookahead, PartialHits: radix.Off,
		},
	}
	if t.PartialHashHits {
		w.Cache.PartialHits = radix.On
	}
	if t.Seed != nil {
		w.Seed = blockhash.SeedText(*t.Seed)
	}
	for _, g := range t.Groups {
		kind, err := radix.ParseKind(g.Kind)
		if err != nil {
			return w, err
		}
		w.Cache.Groups = append(w.Cache.Groups, radix.Group{
			Kind: kind, BlockSize: g.BlockSize, Window: g.SlidingWindow, Chunk: g.AttentionChunkSize, Eagle: g.IsEAGLE,
		})
	}
	return w, scheduledWorker(&w, t)
}

// plainOnly tells whether no prompt of the trace has extra keys that old events
// leave out.
func plainOnly(t *recording.Trace) bool {
	for i := range t.Ops {
		if op := &t.Ops[i]; op.CacheSalt != "" || len(op.Items) > 0 {
			return false
		}
	}
	return true
}

// randomRoot tells whether the root cannot be known, and checks the one noted
// where it can.
func randomRoot(w kvatlas.Worker, t *recording.Trace) (bool, error) {
	scheme, err := blockhash.SchemeFor(w.Engine, w.Release)
	if err != nil {
		return false, err
	}
	h, err := blockhash.New(blockhash.Options{
		Scheme: scheme, Algorithm: w.Algorithm, BlockSize: w.BlockSize, Lookahead: t.Lookahead, Seed: w.Seed,
	})
	if errors.Is(err, blockhash.ErrRoot) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if root := h.AppendRoot(nil); hex.EncodeToString(root) != t.NoneHash {
		return false, fmt.Errorf("root %x, the engine has %s", root, t.NoneHash)
	}
	return false, nil
}

// traceRun is one pass over a trace.
type traceRun struct {
	trace *recording.Trace
	res   *Result
	how   string // added to the place of a difference

	atlas   *kvatlas.Atlas
	prompts recording.Prompts
	extras  map[string]blockhash.Prompt // all but the tokens, by query
	match   kvatlas.Match
	chain   blockhash.Chain
	hasher  *blockhash.Hasher // nil by content
	batch   kvevents.Batch
	ahead   [numSources]int // events of the next message that were applied already
}

func (r *traceRun) do(w kvatlas.Worker) error {
	var err error
	if r.atlas, err = kvatlas.New(kvatlas.Options{}); err != nil {
		return err
	}
	if err := r.atlas.AddWorker(w); err != nil {
		return err
	}
	r.extras = map[string]blockhash.Prompt{}
	if mode, _ := r.atlas.Mode(w.Name); mode == kvatlas.ByHash {
		scheme, err := blockhash.SchemeFor(w.Engine, w.Release)
		if err != nil {
			return err
		}
		r.hasher, err = blockhash.New(blockhash.Options{
			Scheme: scheme, Algorithm: w.Algorithm, BlockSize: w.BlockSize, Lookahead: w.Cache.Lookahead, Seed: w.Seed,
		})
		if err != nil {
			return err
		}
	}
	for i := range r.trace.Ops {
		if err := r.step(i); err != nil {
			return err
		}
	}
	stats, _, err := r.atlas.Stats(w.Name)
	if stats.Contradiction != "" {
		r.res.fail(Difference{Where: "engine" + r.how, Want: "events that fit the trace's own header", Got: stats.Contradiction})
	}
	return err
}

func (r *traceRun) step(at int) error {
	op := &r.trace.Ops[at]
	switch op.Op {
	case "events":
		if op.LocalEvents == nil && r.ahead == [numSources]int{} {
			return r.atlas.Apply("engine", op.Payload)
		}
		return r.whole(op)
	case "arrive":
		return r.arrive(op)
	case "query":
		if _, ok := r.prompts.Get(op.ID); !ok {
			if err := r.arrive(op); err != nil {
				return err
			}
		}
		return r.query(at)
	case "requery":
		return r.query(at)
	case "finish":
		r.prompts.Finish(op)
	case "reset": // the event of the device's clear follows
		return r.reset(op)
	case "state": // what the pools held: for people who look for a difference
	default:
		return fmt.Errorf("line %d: operation %q is not one of a truth trace", op.Line, op.Op)
	}
	return nil
}

func (r *traceRun) arrive(op *recording.TraceOp) error {
	_, err := r.prompts.Add(op)
	r.extras[op.ID] = TracePrompt(op)
	return err
}

func TracePrompt(op *recording.TraceOp) blockhash.Prompt {
	p := blockhash.Prompt{CacheSalt: op.CacheSalt, Items: recorded.Items(op.Items)}
	if op.LoRAName != nil {
		p.LoRA = &blockhash.LoRA{Name: *op.LoRAName, ID: op.LoRAID, Path: op.LoRAPath}
	}
	return p
}

// query predicts one look-up and compares.
func (r *traceRun) query(at int) error {
	op := &r.trace.Ops[at]
	told, err := r.catchUp(at)
	if err != nil {
		return err
	}
	tokens, ok := r.prompts.Get(op.ID)
	if !ok {
		return fmt.Errorf("line %d: query %q was never asked before", op.Line, op.ID)
	}
	tokens = append(tokens[:len(tokens):len(tokens)], op.Output...)
	req := kvatlas.Request{Prompt: r.extras[op.ID]}
	req.Prompt.Tokens, req.Prompt.WideTokens = recorded.Tokens(tokens)
	if err := r.atlas.Match(&req, &r.match); err != nil {
		return fmt.Errorf("line %d: %w", op.Line, err)
	}
	if d := r.tail(op, &req.Prompt); d != nil {
		r.res.fail(*d)
		return nil
	}
	want := hit{local: op.HitTokens}
	got := hit{local: r.match.Workers[0].Usable}
	if r.trace.Connector != "" && op.External != nil { // nil: the connector wants to be asked again
		want.external, got.external = *op.External, r.match.Workers[0].External
	}
	switch {
	case op.PendingEvents > 0, !told, r.match.Workers[0].Unknown != "":
		r.res.Apart++
	case got == want:
		r.res.pass()
	case r.boundHolds(got, want):
		r.res.pass()
		r.res.Bound++
	default:
		r.res.fail(Difference{
			Where: fmt.Sprintf("%s %s at line %d%s", op.Op, op.ID, op.Line, r.how),
			Want:  want.String(), Got: got.String(),
			About: fmt.Sprintf("%d tokens %s", len(tokens), clip(tokens)),
		})
	}
	return nil
}

// hit is an answer: tokens from the device's cache, and what the offload connector
// adds.
type hit struct{ local, external int }

func (h hit) String() string {
	if h.external > 0 {
		return fmt.Sprintf("%d hit tokens and %d external", h.local, h.external)
	}
	return fmt.Sprintf("%d hit tokens", h.local)
}

// boundHolds tells whether the stream is not sufficient here and the prediction
// is on the side on which it then must be. It errs high with several groups that
// events do not tell apart, and after full reports, which look like new copies; low
// behind a connector that announces no stores.
func (r *traceRun) boundHolds(got, want hit) bool {
	if blindConnector(r.trace) {
		return got.local <= want.local && got.external <= want.external
	}
	return (r.match.Workers[0].UpperBound || r.trace.ReportMode == "mixed") &&
		got.local >= want.local && got.external == want.external
}

// tail compares the prompt's last hash with the engine's.
func (r *traceRun) tail(op *recording.TraceOp, p *blockhash.Prompt) *Difference {
	if r.hasher == nil {
		return nil
	}
	want, got := "none", "none"
	if op.HashesTail != nil {
		want = *op.HashesTail
	}
	if err := r.hasher.Start(&r.chain, p); err != nil {
		got = err.Error()
	} else {
		for _, ok := r.chain.Next(); ok; _, ok = r.chain.Next() {
			got = hex.EncodeToString(r.chain.Digest())
		}
	}
	if got == want {
		return nil
	}
	return &Difference{Where: fmt.Sprintf("last hash of %s at line %d", op.ID, op.Line), Want: want, Got: got}
}

package conform

import (
	"fmt"
	"io"
	"slices"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/recorded"
	"github.com/kvatlas/kvatlas/internal/recording"
)

// Prediction is one request of a session with what was predicted for it.
type Prediction struct {
	Line                int
	Request             *recording.ServerRequest
	Rank                int
	Predicted, Reported int    // tokens
	Unknown             string // why nothing could be known
}

// Server checks a truth session of a live server: an index that sees only the
// recorded events predicts, request by request, the cached tokens that the
// server then reported. A reset line stands in for the clear, which the engine
// publishes only with its next step.
func Server(name string, r io.Reader) (*Result, []Prediction) {
	const check = "server"
	s, err := recording.ReadSession(r)
	if err == nil && s.Meta == nil {
		err = fmt.Errorf("no meta line: not a truth session")
	}
	if err != nil {
		return Broken(check, name, err), nil
	}
	engine, version := s.Meta.Name()
	seed := "seed unset"
	if s.Meta.Seed != nil {
		seed = fmt.Sprintf("seed %q", *s.Meta.Seed)
	}
	res := &Result{File: name, Check: check}
	fleet, err := NewSessionFleet(s, "")
	if err != nil {
		return Broken(check, name, err), nil
	}
	preds, err := fleet.Run(nil)
	if err != nil {
		return Broken(check, name, err), nil
	}
	res.What = fmt.Sprintf("%s %s, session %s, %s, %s, matched by %s, %d requests", engine, version, s.Meta.Session, s.Meta.HashAlgo, seed, fleet.Mode(), len(preds))
	for _, w := range fleet.Workers {
		if stats, _, err := fleet.Atlas.Stats(w); err == nil && stats.Contradiction != "" {
			res.fail(Difference{Where: w, Want: "events that fit the recording's own description", Got: stats.Contradiction})
		}
	}
	for _, p := range preds {
		if p.Unknown != "" {
			res.Apart++ // nothing was predicted
			continue
		}
		if p.Predicted == p.Reported {
			res.pass()
			continue
		}
		res.fail(Difference{
			Where: fmt.Sprintf("request at line %d", p.Line),
			Want:  fmt.Sprintf("%d cached tokens", p.Reported), Got: fmt.Sprintf("%d%s", p.Predicted, because(p.Unknown)),
			About: describe(p.Request),
		})
	}
	return res.sound(), preds
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

func describe(r *recording.ServerRequest) string {
	text := fmt.Sprintf("%s, %d tokens %s", r.Kind, len(r.Tokens), clip(r.Tokens))
	if r.CacheSalt != nil {
		text += fmt.Sprintf(", salt %q", *r.CacheSalt)
	}
	if r.LoRAName != nil {
		text += fmt.Sprintf(", adapter %q", *r.LoRAName)
	}
	if r.Note != "" {
		text += ", " + r.Note
	}
	return text
}

// SessionFleet replays one recorded server into an atlas: one worker a
// data-parallel rank.
type SessionFleet struct {
	Atlas   *kvatlas.Atlas
	Workers []string // by rank
	session *recording.Session
	match   kvatlas.Match
}

// NewSessionFleet makes the workers of a session, named prefix and rank.
func NewSessionFleet(s *recording.Session, prefix string) (*SessionFleet, error) {
	a, err := kvatlas.New(kvatlas.Options{})
	if err != nil {
		return nil, err
	}
	f := &SessionFleet{Atlas: a, session: s}
	ranks := 1
	for i := range s.Ops {
		ranks = max(ranks, s.Ops[i].PortOffset+1)
	}
	for rank := range ranks {
		w, err := SessionWorker(s.Meta)
		if err != nil {
			return nil, err
		}
		w.PlainOnly = !slices.ContainsFunc(s.Ops, func(op recording.SessionOp) bool {
			return op.Request != nil && op.Request.CacheSalt != nil
		})
		w.Name = fmt.Sprintf("%srank %d", prefix, rank)
		if err := a.AddWorker(w); err != nil {
			return nil, err
		}
		f.Workers = append(f.Workers, w.Name)
	}
	return f, nil
}

// SessionWorker describes the worker that a session was recorded from.
func SessionWorker(m *recording.SessionMeta) (kvatlas.Worker, error) {
	algorithm, err := blockhash.ParseAlgorithm(m.HashAlgo)
	if err != nil {
		return kvatlas.Worker{}, err
	}
	engine, version := m.Name()
	w := kvatlas.Worker{Engine: engine, Release: version, Algorithm: algorithm, BlockSize: m.BlockSize}
	if m.Seed != nil {
		w.Seed = blockhash.SeedText(*m.Seed)
	}
	return w, nil
}

// Mode is how the workers' blocks are told apart.
func (f *SessionFleet) Mode() kvatlas.Mode {
	m, _ := f.Atlas.Mode(f.Workers[0])
	return m
}

// Run replays the session in order and predicts each request before the events
// it caused. Each prediction is handed to seen, if given.
func (f *SessionFleet) Run(seen func(Prediction)) ([]Prediction, error) {
	var out []Prediction
	for i := range f.session.Ops {
		op := &f.session.Ops[i]
		var err error
		switch op.Op {
		case "event":
			err = f.Atlas.Apply(f.Workers[op.PortOffset], op.Payload)
		case "reset_prefix_cache":
			for _, w := range f.Workers {
				err = f.Atlas.Clear(w)
			}
		case "request":
			var p Prediction
			if p, err = f.predict(i); err == nil {
				out = append(out, p)
				if seen != nil {
					seen(p)
				}
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", op.Line, err)
		}
	}
	return out, nil
}

func (f *SessionFleet) predict(i int) (Prediction, error) {
	op := &f.session.Ops[i]
	req := kvatlas.Request{Prompt: SessionPrompt(op.Request)}
	if err := f.Atlas.Match(&req, &f.match); err != nil {
		return Prediction{}, err
	}
	rank, known := f.rankOf(i)
	if !known {
		// Nothing says where it went: fine if all ranks predict alike.
		if slices.ContainsFunc(f.match.Workers, func(w kvatlas.WorkerMatch) bool { return w.Usable != f.match.Workers[0].Usable }) {
			return Prediction{Line: op.Line, Request: op.Request, Reported: op.Request.Cached(), Unknown: "the recording does not say which rank served it"}, nil
		}
	}
	w := &f.match.Workers[rank]
	return Prediction{
		Line: op.Line, Request: op.Request, Rank: rank,
		Predicted: w.Usable, Reported: op.Request.Cached(), Unknown: w.Unknown,
	}, nil
}

// rankOf finds the rank that served request i: the one it was sent to, where
// that was noted, else the one whose events follow.
func (f *SessionFleet) rankOf(i int) (int, bool) {
	if len(f.Workers) == 1 {
		return 0, true
	}
	if r := f.session.Ops[i].Request; r.HasRank && r.Rank < len(f.Workers) {
		return r.Rank, true
	}
	for _, op := range f.session.Ops[i+1:] {
		switch op.Op {
		case "event":
			return op.PortOffset, true
		case "request":
			return 0, false
		}
	}
	return 0, false
}

// SessionPrompt is the prompt of a recorded request.
func SessionPrompt(r *recording.ServerRequest) blockhash.Prompt {
	p := blockhash.Prompt{}
	p.Tokens, p.WideTokens = recorded.Tokens(r.Tokens)
	if r.CacheSalt != nil {
		p.CacheSalt = *r.CacheSalt
	}
	if r.LoRAName != nil {
		p.LoRA = &blockhash.LoRA{Name: *r.LoRAName}
		if r.LoRAPath != nil {
			p.LoRA.Path = *r.LoRAPath
		}
	}
	return p
}

package conform

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/recorded"
	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/kvevents/lmcache"
)

// answersRun replays what a controller of LMCache was sent and compares its replies,
// byte by byte, and its look-ups.
type answersRun struct {
	res        *Result
	header     recording.AnswersHeader
	controller *lmcache.Controller
	hasher     *blockhash.Hasher // nil: Python's own hash, by keys only
	sent       int
	ended      bool // the counters at the end came
}

func newAnswersRun(line []byte, res *Result) (*answersRun, error) {
	header, err := recording.ReadAnswersHeader(line)
	if err != nil {
		return nil, err
	}
	r := &answersRun{res: res, header: header}
	h := &r.header
	res.What = fmt.Sprintf("controller of LMCache %s, %s", h.LMCache, h.Algorithm)
	if h.ChunkSize < 1 {
		return nil, fmt.Errorf("chunks of %d tokens", h.ChunkSize)
	}
	scheme, err := blockhash.SchemeFor("lmcache", h.LMCache)
	if err != nil {
		return nil, err
	}
	o := lmcache.Options{}
	if strings.HasPrefix(h.LMCache, "0.3.") && len(h.LMCache) == len("0.3.9") { // to 0.3.9
		o.Rules = lmcache.Single
	}
	if h.Algorithm != "builtin" {
		algorithm, err := blockhash.ParseAlgorithm(h.Algorithm)
		if err != nil {
			return nil, err
		}
		options := blockhash.Options{Scheme: scheme, Algorithm: algorithm, BlockSize: h.ChunkSize, PartialChunk: h.Partial}
		if h.Seed != nil {
			options.Seed = blockhash.SeedText(*h.Seed)
		}
		if o.Hasher, err = blockhash.New(options); err != nil {
			return nil, err
		}
	} else {
		res.note("keys are Python's own hash: look-ups by the recorded keys, which are not computed here")
	}
	r.hasher = o.Hasher
	r.controller, err = lmcache.NewController(o)
	return r, err
}

func (r *answersRun) next(n int, line []byte) error {
	l, err := recording.ReadAnswer(line)
	if err != nil {
		return err
	}
	if l.N != n-1 || r.ended {
		return fmt.Errorf("number %d, want %d, and nothing after the counters: lines are missing", l.N, n-1)
	}
	where := fmt.Sprintf("line %d, %s", n, l.Type)
	switch l.Op {
	case "message":
		r.sent++
		r.message(where, &l)
		return nil
	case "lookup":
		return r.lookup(fmt.Sprintf("look-up at line %d", n), &l)
	case "state":
		r.ended = true
		s := r.controller.Stats()
		r.compare(fmt.Sprintf("line %d", n), fmt.Sprintf("%d chunks, %d gaps", l.Chunks, l.Gaps), fmt.Sprintf("%d chunks, %d gaps", s.Keys, s.Gaps))
		return nil
	}
	return fmt.Errorf("op %q is not one of a controller's", l.Op)
}

func (r *answersRun) compare(where, want, got string) {
	if want == got {
		r.res.pass()
	} else {
		r.res.fail(Difference{Where: where, Want: want, Got: got})
	}
}

func (r *answersRun) message(where string, l *recording.Answer) {
	m, err := lmcache.DecodeAs(l.Type, l.Sent)
	if err != nil {
		r.res.fail(Difference{Where: where, Want: "a message", Got: err.Error()})
		return
	}
	answer, err := r.controller.Handle(m)
	if err != nil {
		r.res.fail(Difference{Where: where, Want: "a reply or nothing", Got: err.Error()})
		return
	}
	var reply []byte
	if answer != nil {
		reply = lmcache.Append(nil, answer)
	}
	if _, err := lmcache.Decode(l.Reply); l.Reply != nil && err != nil && strings.Contains(err.Error(), "got None") {
		r.res.Apart++ // to 0.3.9 the controller breaks its own protocol where it knows no address
		return
	}
	if bytes.Equal(l.Reply, reply) {
		r.res.pass()
		return
	}
	r.res.fail(Difference{Where: where, Want: fmt.Sprintf("reply %q", l.Reply), Got: fmt.Sprintf("%q", reply)})
}

func (r *answersRun) lookup(where string, l *recording.Answer) error {
	keys := make([]lmcache.Key, len(l.Keys))
	for i, k := range l.Keys {
		var err error
		if keys[i].Bits, keys[i].Negative, err = k.Bits(); err != nil {
			return err
		}
	}
	want := lmcache.Layout{}
	for _, p := range l.Layout {
		want = append(want, lmcache.Placement{InstanceID: p.Instance, Location: p.Location, Tokens: p.Tokens})
	}
	got := r.controller.LookupKeys(keys, r.header.ChunkSize, len(l.Tokens))
	if r.hasher != nil {
		p := &blockhash.Prompt{}
		p.Tokens, p.WideTokens = recorded.Tokens(l.Tokens)
		own, err := r.hasher.AppendKeys(nil, p)
		if err != nil {
			return err
		}
		if fmt.Sprint(own) != fmt.Sprint(l.Keys) {
			r.compare(where, fmt.Sprint(l.Keys), fmt.Sprint(own))
			return nil
		}
		if got, err = r.controller.LookupPrompt(p); err != nil {
			return err
		}
	}
	r.compare(where, fmt.Sprint(want), fmt.Sprint(got))
	return nil
}

package kvatlas

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/parity"
	"github.com/kvatlas/kvatlas/radix"
)

// What a worker's engine is, the monitor finds from its events. An automatic worker
// has no place until then; its batches wait. One that is described is where its
// description says, and is told off, and moved to where its blocks are known by
// content, when the events prove the description wrong.

const unknownYet = "no block was announced yet that tells what the engine is: a prompt's first block on the device, with its tokens; " +
	"with a random root before vLLM 0.17 none ever does, unless the worker is declared PlainOnly"

// automatic prepares a worker that is to be found out. It has no place yet.
func (w *worker) automatic(seeds []blockhash.Seed) (*residence, error) {
	if err := w.guessEngine(); err != nil {
		return nil, err
	}
	if err := w.checkEngine(); err != nil {
		return nil, err
	}
	if ruled(&w.Cache) && (w.Release == "" || w.Cache.HashUnit == 0 && w.BlockSize == 0) {
		return nil, fmt.Errorf("%w: the rules of cache groups and connectors differ by release: give Release and BlockSize", ErrOptions)
	}
	unit := cmp.Or(w.Cache.HashUnit, w.BlockSize)
	if unit < 0 || unit > 0 && w.BlockSize%unit != 0 {
		return nil, fmt.Errorf("%w: block size %d, hash unit %d", ErrBlockSize, w.BlockSize, unit)
	}
	if _, err := w.profile(cmp.Or(w.Engine, "vllm"), w.Release, cmp.Or(unit, 16), w.Cache.Lookahead); err != nil {
		return nil, err
	}
	o := parity.Options{
		Engine: cmp.Or(w.Engine, parity.AnyEngine), Release: w.Release, Seeds: seeds, Dynamo: parity.Open, PlainOnly: w.PlainOnly,
		Doubts: 1, // content keys are right, whatever the hash
	}
	if w.DynamoEvents {
		o.Dynamo = parity.Yes
	}
	if w.Seed != (blockhash.Seed{}) {
		o.Seeds = append([]blockhash.Seed{w.Seed}, seeds...)
	}
	if len(w.Cache.Groups) > 1 {
		o.HashBlockSize = unit
	}
	return nil, w.monitored(o)
}

// ruled tells whether what is cached follows rules that differ by release.
func ruled(o *radix.ProfileOptions) bool {
	return o.Connector != radix.NoConnector || len(o.Groups) > 1 || len(o.Groups) == 1 && o.Groups[0].Kind != radix.FullAttention ||
		o.SchedulerBlock != 0 || o.PartialHits != radix.Auto
}

// guessEngine tells the engine from a release that only one can have.
func (w *Worker) guessEngine() error {
	if w.Engine != "" || w.Release == "" {
		return nil
	}
	var first error
	for _, engine := range []string{"vllm", sglang} {
		scheme, err := blockhash.SchemeFor(engine, w.Release)
		if err == nil && !scheme.Assumed() {
			w.Engine = engine
			return nil
		}
		first = cmp.Or(first, err)
	}
	return cmp.Or(first, fmt.Errorf("%w: release %s needs its Engine", ErrOptions, quoted(w.Release)))
}

// monitored makes the worker's monitor, whose news are acted on in watch.
func (w *worker) monitored(o parity.Options) (err error) {
	o.Notify = func(v parity.Verdict) { w.news = &v }
	w.monitor, err = parity.New(o)
	return err
}

// anew forgets what the engine was found to be: another one may have taken its place.
func (w *worker) anew() error {
	w.contradiction, w.lasting, w.news, w.found = "", "", nil, parity.Verdict{}
	w.reason.Store(nil)
	w.history = history{}
	if w.monitor == nil {
		return nil
	}
	w.monitor.Reset()
	if w.Auto {
		w.leave()
		return nil
	}
	w.history.on = w.tellsContent(w.described.key.scheme)
	return w.move(w.described)
}

// watch lets the monitor see a batch before it is applied, and acts on what it found.
func (w *worker) watch(b *kvevents.Batch) {
	if w.monitor == nil {
		return
	}
	w.monitor.Observe(b)
	if w.news != nil && w.news.State == parity.Alien && w.Auto {
		// Another engine took its place unseen, perhaps: what was known is not its.
		_ = w.anew()
		w.monitor.Observe(b)
	}
	if v := w.news; v != nil {
		w.news = nil
		w.judge(*v)
	}
}

// judge acts on what the monitor found.
func (w *worker) judge(v parity.Verdict) {
	w.found = v
	why, hashOnly := w.against(v)
	var to residence
	var err error
	switch {
	case why == "" && v.State == parity.Exact:
		to, err = w.exactly(v)
	case why == "" && v.State != parity.Mismatch:
		if v.Nodes && w.Auto {
			w.unplaced("SGLang before 0.5.1, whose events do not tell pages from nodes of any size: give Release and BlockSize, and not Auto")
		}
		return
	case why == "" || hashOnly:
		to, err = w.byContentOf(v)
	default:
		err = constError(why)
	}
	if err == nil {
		err = w.settle(to)
	}
	switch {
	case err != nil && why == "":
		w.unplaced(err.Error())
	case err != nil:
		w.contradict(why)
	case why != "":
		w.object(why + "; its blocks are matched by content")
		w.known()
	default:
		w.contradiction = ""
		w.known()
	}
}

// known says that prompts are known on the worker, unless its blocks were not as
// described.
func (w *worker) known() {
	if w.lasting != "" {
		w.contradict(w.lasting)
		return
	}
	w.reason.Store(nil)
	if w.Auto {
		k := w.at.Load().domain.key
		w.log.Info("found what the engine is", "releases", parity.Releases(w.found.Eras), "algorithm", k.algorithm, "seed", k.seed,
			"block size", k.unit, "matched by", w.at.Load().mode)
	}
}

// settle moves the worker. What it announces is kept on as long as it may have to be
// applied at another place again: by content, until a hash is found after all.
func (w *worker) settle(to residence) error {
	if err := w.move(to); err != nil {
		return err
	}
	if w.history.on = w.Auto && to.key.content; !w.history.on {
		w.history = history{}
	}
	return nil
}

// exactly is where the blocks go whose hash was found.
func (w *worker) exactly(v parity.Verdict) (residence, error) {
	if !w.Auto {
		return w.described, nil
	}
	var keys []domainKey
	for _, c := range v.Candidates {
		keys = append(keys, domainKey{scheme: c.Scheme, algorithm: v.Algorithm, seed: v.Seed, unit: v.BlockSize, lookahead: v.Lookahead,
			eagle: v.EAGLE, dynamo: c.Dynamo})
	}
	return w.among(keys)
}

// byContentOf is where the blocks go whose hash is not known.
func (w *worker) byContentOf(v parity.Verdict) (residence, error) {
	if !w.Auto {
		to := residence{key: w.byContent(w.described.key), profile: w.described.profile}
		if !w.tellsContent(to.key.scheme) {
			return to, fmt.Errorf("events of %v do not tell enough to match by content", to.key.scheme)
		}
		return to, nil
	}
	var keys []domainKey
	for _, e := range slices.Backward(v.Eras) {
		key := w.byContent(domainKey{scheme: e.Scheme, unit: cmp.Or(w.Cache.HashUnit, w.BlockSize, v.BlockSize), lookahead: v.Lookahead})
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	to, err := w.among(keys)
	if err == nil && !w.tellsContent(to.key.scheme) {
		err = fmt.Errorf("%w, and events of %s do not tell enough to match by content", v, parity.Releases(v.Eras))
	}
	return to, err
}

// tellsContent tells whether blocks can be told apart by the events of a scheme.
func (w *Worker) tellsContent(s blockhash.Scheme) bool {
	return s.Engine() == "vllm" && (s.EventExtraKeys() || w.PlainOnly)
}

// among chooses among keys of which one is the engine's, the newest first: one whose
// domain is in use, else the first. What they differ in stays open.
func (w *worker) among(keys []domainKey) (residence, error) {
	if w.Release != "" {
		scheme, err := blockhash.SchemeFor(w.Engine, w.Release)
		if err != nil {
			return residence{}, err
		}
		keys = slices.DeleteFunc(keys, func(k domainKey) bool { return k.scheme.Since() != scheme.Since() })
		for i := range keys {
			keys[i].scheme = scheme // which may be an assumed one
		}
	}
	if len(keys) == 0 {
		return residence{}, constError("no known release publishes such events")
	}
	releases := parity.Releases(w.found.Eras)
	to := residence{key: w.domains.among(keys)}
	for _, k := range keys {
		open, ok := to.key.differ(k)
		if !ok {
			return to, fmt.Errorf("the engine may be %s, which do not hash alike: give Release", releases)
		}
		to.open |= open
	}
	to.why = fmt.Sprintf("the engine may be %s, which hash such prompts in different ways: no block of one was announced yet; or give Release", releases)
	var err error
	to.profile, err = w.profile(to.key.scheme.Engine(), cmp.Or(w.Release, to.key.scheme.Since()), to.key.unit, to.key.lookahead)
	return to, err
}

// unplaced gives up the worker's place: nothing is known on it, for a reason.
func (w *worker) unplaced(reason string) {
	w.leave()
	w.sayUnknown(reason)
}

func (w *worker) sayUnknown(reason string) {
	if w.unknown() != reason {
		w.log.Warn("nothing is known of the worker's blocks", "reason", reason)
		w.reason.Store(&reason)
	}
}

package kvatlas

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/parity"
	"github.com/kvatlas/kvatlas/radix"
	"github.com/kvatlas/kvatlas/scoring"
)

// Worker describes one cache of the fleet: one replica, or one data-parallel
// rank of it, since each rank has a cache and an event stream of its own. Name,
// Release and BlockSize are required.
type Worker struct {
	// Name identifies the worker in every call.
	Name string
	// Engine is "vllm" (also if empty) or "sglang"; or, from documents only,
	// "tensorrt-llm" (also "trtllm"), "dynamo" or "mooncake", see [FromDocuments].
	Engine string
	// Release is the engine's release, such as "0.32.0".
	Release string
	// Algorithm is the engine's prefix_caching_hash_algo.
	Algorithm blockhash.Algorithm
	// Seed says what the engine's root hash is made of; the zero value is an
	// engine without PYTHONHASHSEED in its environment. Where that root is
	// random the worker's blocks are known by content, see [ByContent].
	Seed blockhash.Seed
	// BlockSize is the number of tokens in a block: --block-size (SGLang:
	// --page-size), times the decode context parallel size.
	BlockSize int
	// Cache describes what else decides a hit: cache groups of hybrid models,
	// EAGLE, offload connector, what repeated announcements mean. Release and,
	// where it is 0, HashUnit are filled in from the fields above. The zero
	// value is a model with full attention only.
	Cache radix.ProfileOptions

	// LMCache describes the LMCache of a vLLM worker whose events come in its stream;
	// nil if it has none. Without it they match nothing.
	LMCache *LMCache
	// XXH3Seed is the seed of the block hashes of Dynamo, whose 0 stands for 1337, and
	// of a publisher that hashes as Mooncake's RFC 1527 has it. 0 says of such a
	// publisher that its hashes are its own.
	XXH3Seed uint64
	// DynamoEvents says that SGLang publishes in "format": "dynamo" (from 0.5.22).
	DynamoEvents bool
	// PlainOnly declares that no request to this worker has a cache salt,
	// multimodal items or prompt embeds. It is needed to match by content on
	// releases whose events do not tell such blocks from plain ones (vLLM before
	// 0.17); without it nothing is known there. See [ByContent].
	PlainOnly bool

	// Replica is the name under which a subscriber knows the engine, where it is
	// not Name: an engine with several data-parallel ranks is one target of a
	// subscriber and one worker a rank.
	Replica string
	// Rank is the data-parallel rank; it, Labels and Capability are handed on to
	// the policy.
	Rank       int32
	Labels     []scoring.Label
	Capability float64
}

const sglang = "sglang"

// limitation names what an engine's release gets wrong in its events, so that no
// consumer can be right; empty for most.
func (w *Worker) limitation() string {
	if release, _, _ := strings.Cut(strings.TrimPrefix(w.Release, "v"), "post"); w.Engine == sglang && strings.TrimSuffix(release, ".") == "0.5.6" {
		return "SGLang 0.5.6 removes the pages of a node that it splits and does not announce them again: matches are too low"
	}
	return ""
}

// Mode is how a worker's blocks are told apart.
type Mode uint8

const (
	// ByHash: prompts are hashed as the engine hashes them, and its hashes are
	// the index's keys.
	ByHash Mode = iota
	// ByContent: the engine's root is random, so its hashes cannot be computed
	// here. Each announced block is given a key of our own, made from its
	// parent, tokens and extra keys; prompts are looked up by that.
	//
	// Its limits: releases before 0.17 announce no extra keys, so that the blocks
	// of salted, multimodal and embedded prompts cannot be told from plain ones.
	// There a match is known only for plain prompts, and only on a worker that
	// is declared to get no others ([Worker.PlainOnly]): else a prompt could be
	// said to be held whose tokens came with another tenant's salt. Of models with
	// several cache groups only the blocks whose events give their place count:
	// matches can be too low.
	ByContent
)

// String returns "hash" or "content".
func (m Mode) String() string {
	if m == ByContent {
		return "content"
	}
	return "hash"
}

// worker is a registered worker. Its mutex orders what changes its blocks.
type worker struct {
	Worker
	domain *domain
	id     radix.WorkerID   // in the domain's index
	serial scoring.WorkerID // among all workers, never used again
	mode   Mode
	// speculation is told what the engine announces; nil if off.
	speculation *scoring.Speculation

	// contradiction is what the events say against the description; nil if
	// nothing.
	contradiction atomic.Pointer[string]

	mu      sync.Mutex
	gone    bool
	monitor *parity.Monitor // nil unless ByHash
	batch   kvevents.Batch
	content *contentState // nil unless ByContent
	nodes   *nodeState    // instead of content, where events are nodes of a tree
	chunks  *chunkState   // nil without LMCache
	stats   WorkerStats

	prediction Prediction
}

// AddWorker registers a worker. Adding the same description again changes
// nothing; another description under a known name is an error: remove the
// worker first, since its blocks were announced under the old one.
//
// Errors wrap those of [blockhash.SchemeFor], [blockhash.New] and
// [radix.NewProfile], or are [ErrWorkerName], [ErrWorkerExists].
func (a *Atlas) AddWorker(w Worker) error {
	switch {
	case a.flights == nil:
		return ErrNoAtlas
	case w.Name == "":
		return ErrWorkerName
	case w.Rank < 0:
		return fmt.Errorf("%w: rank %d of worker %q, want 0 or more", ErrOptions, w.Rank, w.Name)
	case w.Cache.Release != "" && w.Cache.Release != w.Release:
		return fmt.Errorf("%w: worker %q is of release %q, its cache of %q: give the release once", ErrOptions, w.Name, w.Release, w.Cache.Release)
	}
	if !(w.Capability >= 0 && w.Capability <= math.MaxFloat64) {
		return fmt.Errorf("%w: worker %q has capability %v, want 0 or more", ErrOptions, w.Name, w.Capability)
	}
	w.Engine = engineName(w.Engine)
	if w.Engine != "vllm" && w.Engine != sglang && !w.documented() {
		return fmt.Errorf("%w: engine %q of worker %q; known are vllm, sglang, and from documents %s", ErrUnsupported, w.Engine, w.Name, FromDocuments)
	}
	if w.DynamoEvents && w.Engine != sglang {
		return fmt.Errorf("%w: DynamoEvents of worker %q: it is an option of SGLang", ErrUnsupported, w.Name)
	}
	if w.XXH3Seed != 0 && w.Engine != dynamo && w.Engine != mooncake {
		return fmt.Errorf("%w: XXH3Seed of worker %q: it is of dynamo and mooncake", ErrUnsupported, w.Name)
	}
	if err := w.checkLMCache(); err != nil {
		return workerError(w.Name, err)
	}
	w.Labels = slices.Clone(w.Labels)
	profile, err := w.profile()
	if err != nil {
		return workerError(w.Name, err)
	}
	key, err := w.domainKey()
	if err != nil {
		return workerError(w.Name, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.current()
	if old, ok := s.byName[w.Name]; ok {
		if sameWorker(&old.Worker, &w) {
			return nil
		}
		return fmt.Errorf("%w: %q", ErrWorkerExists, w.Name)
	}
	if old, ok := s.bySource[w.source()]; ok {
		return fmt.Errorf("%w: rank %d of replica %q is worker %q", ErrWorkerExists, w.Rank, w.source().Worker, old.Name)
	}
	d, err := a.domainFor(s, key)
	if err != nil {
		return workerError(w.Name, err)
	}
	id, err := d.index.AddWorker(w.Name, profile)
	if err != nil {
		return workerError(w.Name, err)
	}
	a.serial++
	n := &worker{Worker: w, domain: d, id: id, serial: scoring.WorkerID(a.serial), speculation: a.speculation}
	switch {
	case key.nodes:
		n.mode, n.nodes = ByContent, newNodeState(d, n)
	case key.content, key.relay:
		n.mode = ByContent
		if n.content, err = newContentState(d, id, n); err != nil {
			d.index.RemoveWorker(id)
			return workerError(w.Name, err)
		}
	}
	err = n.watch()
	if err == nil {
		err = a.addChunks(s, n)
	}
	if err != nil {
		d.index.RemoveWorker(id)
		return workerError(w.Name, err)
	}
	a.flights.Add(n.serial)
	a.fleet.Store(s.with(n))
	return nil
}

// source is where the worker's events come from.
func (w *Worker) source() kvevents.Source {
	return kvevents.Source{Worker: cmp.Or(w.Replica, w.Name), Rank: w.Rank}
}

// workerError names the worker, and the package once.
func workerError(name string, err error) error {
	var own constError
	if errors.As(err, &own) {
		return fmt.Errorf("%w (worker %q)", err, name)
	}
	return fmt.Errorf("kvatlas: worker %q: %w", name, err)
}

// profile compiles the description of the worker's cache.
func (w *Worker) profile() (*radix.Profile, error) {
	o := w.Cache
	o.Release = w.Release
	if o.HashUnit == 0 {
		o.HashUnit = w.BlockSize
	}
	if o.HashUnit < 1 {
		return nil, fmt.Errorf("%w: got %d", ErrBlockSize, o.HashUnit)
	}
	if w.BlockSize%o.HashUnit != 0 || w.BlockSize < 0 {
		return nil, fmt.Errorf("%w: block size %d is not a multiple of the hash unit %d", ErrBlockSize, w.BlockSize, o.HashUnit)
	}
	w.Cache = o
	if w.documented() {
		return w.documentedProfile()
	}
	if w.Engine == sglang {
		// Its one rule: whole pages from the start, the last token left out. EAGLE
		// is in the pages, not in the rule.
		return radix.NewProfile(radix.ProfileOptions{HashUnit: o.HashUnit, Copies: o.Copies, Clear: o.Clear})
	}
	return radix.NewProfile(o)
}

// domainKey says which prompts hash alike for this worker: by the engine's hash
// where it can be computed, by content where the root is random.
func (w *Worker) domainKey() (domainKey, error) {
	scheme, err := blockhash.SchemeFor(w.Engine, w.Release)
	if err != nil {
		return domainKey{}, err
	}
	key := domainKey{scheme: scheme, algorithm: w.Algorithm, seed: w.Seed, unit: w.Cache.HashUnit, lookahead: w.Cache.Lookahead}
	if w.documented() {
		return w.documentedKey(key)
	}
	if w.Engine == sglang {
		if len(w.Cache.Groups) > 0 || w.Cache.Connector != radix.NoConnector {
			return domainKey{}, fmt.Errorf("%w: cache groups and connectors of SGLang", ErrUnsupported)
		}
		if scheme.Through() == "0.4.7" {
			if w.Cache.Eagle {
				return domainKey{}, fmt.Errorf("%w: EAGLE in SGLang before 0.4.8", ErrUnsupported)
			}
			return domainKey{scheme: scheme, unit: key.unit, content: true, nodes: true, plainOnly: w.PlainOnly}, nil
		}
		key.eagle, key.dynamo = w.Cache.Eagle, w.DynamoEvents
	}
	_, err = key.hasher(0)
	if errors.Is(err, blockhash.ErrRoot) && w.Seed == (blockhash.Seed{}) {
		return domainKey{scheme: scheme, unit: key.unit, lookahead: key.lookahead, content: true, plainOnly: w.PlainOnly}, nil
	}
	return key, err
}

// RemoveWorker forgets a worker and everything it holds. It reports whether the
// worker was registered. No operation on it that is still under way leaves
// anything behind.
func (a *Atlas) RemoveWorker(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.current()
	w, ok := s.byName[name]
	if !ok {
		return false
	}
	a.fleet.Store(s.without(w))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
	w.domain.index.RemoveWorker(w.id)
	if w.chunks != nil {
		w.chunks.domain.index.RemoveWorker(w.chunks.id)
	}
	a.flights.Remove(w.serial)
	if a.learner != nil {
		a.learner.Forget(w.serial)
	}
	w.forget()
	return true
}

// Mode returns how a worker's blocks are told apart.
func (a *Atlas) Mode(name string) (Mode, bool) {
	w, ok := a.current().byName[name]
	if !ok {
		return 0, false
	}
	return w.mode, true
}

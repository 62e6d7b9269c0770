package kvatlas

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
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
// Release and BlockSize are required, or Name and Auto.
type Worker struct {
	// Name identifies the worker in every call.
	Name string
	// Auto finds from the worker's events what is left at its zero value of Engine,
	// Release, Algorithm, Seed, BlockSize and DynamoEvents. What is given is
	// not searched for: events that contradict it are told, and the worker is then
	// not matched by hash. Until a block was announced that decides, every prompt's
	// match on the worker is unknown; see [Atlas.Profile] for what was found.
	//
	// What no event tells must be given all the same: EAGLE of vLLM (Cache.Eagle),
	// offload connectors (Cache.Connector) and cache groups (Cache.Groups), these two with
	// Release and BlockSize, since their rules differ by release. Without Auto must be
	// described, by Release and BlockSize: workers with LMCache (Algorithm and Seed too,
	// if they are not the defaults), those of engines known from documents (Engine too,
	// see [FromDocuments]), and SGLang before 0.5.1 (Engine too). After a restart
	// everything is found anew, so that an upgraded engine is taken for what it is.
	Auto bool
	// Engine is "vllm" (also if empty) or "sglang"; or, from documents only,
	// "tensorrt-llm" (also "trtllm"), "dynamo" or "mooncake", see [FromDocuments].
	Engine string
	// Release is the engine's release, such as "0.32.0".
	Release string
	// Algorithm is the engine's prefix_caching_hash_algo.
	Algorithm blockhash.Algorithm
	// Seed says what the engine's root hash is made of; the zero value is an
	// engine without PYTHONHASHSEED in its environment. Where that root is
	// random the worker's blocks are known by content, see [ByContent]. SGLang has none.
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
	// multimodal items or prompt embeds; on SGLang also no adapter or extra key. It
	// is needed to match by content on releases whose events do not tell such blocks
	// from plain ones (vLLM before 0.17); without it nothing is known there, see
	// [ByContent]. On SGLang, whose namespaces share hashes, matches without it are
	// upper bounds.
	PlainOnly bool

	// Replica is the name under which a subscriber knows the engine, where it is
	// not Name: an engine with several data-parallel ranks is one target of a
	// subscriber and one worker a rank.
	Replica string
	// Rank is the data-parallel rank; it, Labels and Capability are handed on to
	// the policy, see [scoring.Candidate].
	Rank       int32
	Labels     []scoring.Label
	Capability float64
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
	serial  scoring.WorkerID // among all workers, never used again
	domains *domains
	log     *slog.Logger
	// speculation is told what the engine announces; nil if off.
	speculation *scoring.Speculation

	at     atomic.Pointer[place]  // nil: nothing is known yet
	reason atomic.Pointer[string] // why no prompt is known here; nil where they are
	excess atomic.Bool            // removals may have been lost while blocks were known
	heard  atomic.Uint32          // see nothingHeard

	mu            sync.Mutex
	gone          bool
	monitor       *parity.Monitor // nil where nothing can be checked
	news          *parity.Verdict // that were not acted on yet
	found         parity.Verdict  // acted on last
	described     residence       // by the description, where it is complete
	contradiction string          // what the events say against it
	lasting       string          // a contradiction that only another engine ends
	history       history         // batches that were not applied, or may have to be again
	again         bool            // they are being applied again
	batch         kvevents.Batch
	position      kvevents.Position // of the stream, after what was applied last; none if unknown
	content       *contentState     // nil unless ByContent
	nodes         *nodeState        // instead of content, where events are nodes of a tree
	chunks        *chunkState       // nil without LMCache
	adapters      *contentState     // of blocks of adapters whose namespace only the engine knows
	stats         WorkerStats

	prediction Prediction
}

// What was heard of the worker so far: nothing; that its replay is empty; that it still is
// after a request was served, as of a silent publisher; events.
const (
	nothingHeard uint32 = iota
	heardEmpty
	heardSilent
	heardEvents
)

func (w *worker) unheard() bool {
	heard := w.heard.Load()
	return heard == nothingHeard || heard == heardSilent
}

// unknown says why no prompt is known on the worker, "" where they are.
func (w *worker) unknown() string {
	if p := w.reason.Load(); p != nil {
		return *p
	}
	return ""
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
	case w.Name[0] == 0: // names of our own in the indexes
		return fmt.Errorf("%w, got one that begins with NUL: %s", ErrWorkerName, quoted(w.Name))
	case w.Rank < 0:
		return fmt.Errorf("%w: rank %d of worker %s, want 0 or more", ErrOptions, w.Rank, quoted(w.Name))
	case w.Cache.Release != "" && w.Cache.Release != w.Release:
		return fmt.Errorf("%w: worker %s is of release %s, its cache of %s: give the release once", ErrOptions, quoted(w.Name), quoted(w.Release), quoted(w.Cache.Release))
	}
	if err := (&scoring.Candidate{Name: w.Name, Capability: w.Capability}).Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	w.Labels, w.Cache.Groups = slices.Clone(w.Labels), slices.Clone(w.Cache.Groups)
	if w.Engine != "" || !w.Auto {
		w.Engine = engineName(w.Engine)
	}
	n := &worker{Worker: w, domains: &a.domains, speculation: a.speculation, log: a.log.With("worker", w.Name)}
	add := n.describe
	if w.Auto {
		add = n.automatic
	}
	as, err := add(a.options.Seeds)
	if err != nil {
		return workerError(w.Name, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.current()
	if old, ok := s.byName[w.Name]; ok {
		if sameWorker(&old.Worker, &n.Worker) {
			return nil
		}
		return fmt.Errorf("%w: %s", ErrWorkerExists, quoted(w.Name))
	}
	if old, ok := s.bySource[w.source()]; ok {
		return fmt.Errorf("%w: rank %d of replica %s is worker %s", ErrWorkerExists, w.Rank, quoted(w.source().Worker), quoted(old.Name))
	}
	if as != nil {
		err = n.move(*as)
	}
	if err == nil {
		err = a.addChunks(n)
	}
	if err != nil {
		n.leave()
		return workerError(w.Name, err)
	}
	a.serial++
	n.serial = scoring.WorkerID(a.serial)
	a.flights.Add(n.serial)
	a.peers.Add(n.serial, n.Name)
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
		return fmt.Errorf("%w (worker %s)", err, quoted(name))
	}
	return fmt.Errorf("kvatlas: worker %s: %w", quoted(name), err)
}

// maxQuoted is how much of a name an error has: names come from snapshots too, which may
// say anything.
const maxQuoted = 64

// quoted is a name as errors have it: of a long one the first bytes, and how many it has.
func quoted(name string) string {
	if len(name) <= maxQuoted {
		return strconv.Quote(name)
	}
	return fmt.Sprintf("%q... (%d bytes)", name[:maxQuoted], len(name))
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
	w.leave()
	if w.chunks != nil {
		w.chunks.domain.index.RemoveWorker(w.chunks.id)
		a.domains.give(w.chunks.domain)
	}
	a.flights.Remove(w.serial)
	a.peers.Remove(w.serial)
	if a.learner != nil {
		a.learner.Forget(w.serial)
	}
	return true
}

// Mode returns how a worker's blocks are told apart; ByHash while that is not
// known.
func (a *Atlas) Mode(name string) (Mode, bool) {
	w, ok := a.current().byName[name]
	if !ok {
		return 0, false
	}
	if p := w.at.Load(); p != nil {
		return p.mode, true
	}
	return ByHash, true
}

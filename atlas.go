package kvatlas

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
	"github.com/kvatlas/kvatlas/scoring"
)

type constError string

func (e constError) Error() string { return string(e) }

const (
	// ErrOptions is wrapped by the errors of [New] that are about this package's
	// own options.
	ErrOptions = constError("kvatlas: invalid options")
	// ErrWorkerName is returned when a worker has no name, or one that begins with NUL.
	ErrWorkerName = constError("kvatlas: a worker needs a name")
	// ErrWorkerExists is returned by AddWorker when the name is taken by a
	// worker of another description.
	ErrWorkerExists = constError("kvatlas: the name is taken by a worker of another description; remove it first")
	// ErrUnknownWorker is returned when no worker of that name is registered.
	ErrUnknownWorker = constError("kvatlas: no such worker")
	// ErrUnsupported is returned for a worker whose engine can be hashed but not
	// followed.
	ErrUnsupported = constError("kvatlas: not supported")
	// ErrBlockSize is returned when a worker's block size is not positive.
	ErrBlockSize = constError("kvatlas: a worker needs a block size of at least 1 token")
	// ErrMedium is returned by Clear for the name of a medium that no event, no option
	// and no engine has.
	ErrMedium = constError("kvatlas: no such medium")
	// ErrNil is returned when a request, a result or a batch is nil.
	ErrNil = constError("kvatlas: a nil request, result or batch")
	// ErrNoAtlas is returned by AddWorker of an Atlas that New did not make.
	ErrNoAtlas = constError("kvatlas: an Atlas is made by New")
	// ErrNoWorkers is returned by Route when no worker is left to choose from.
	ErrNoWorkers = constError("kvatlas: no worker to choose from")
)

// Options configures an [Atlas]. The zero value is usable.
type Options struct {
	// Weights gives blocks a value by the name of their medium, 0 to 1;
	// see [radix.Options].
	Weights map[string]float64
	// IndexBytes bounds the memory of what is known of blocks, for each way of hashing
	// in the fleet; 0 is bounded by what blocks can be numbered. At the limit the
	// workers that hold the most forget some, which makes matches lower and is counted.
	// See [radix.Options]. Set it for engines with blocks of 1 token, which take an entry
	// a token; without it they are warned of (Logger).
	IndexBytes int
	// Policy chooses the worker in [Atlas.Route]; nil means [scoring.KVAtlas] with
	// the options of KVAtlas, which learns from every [Trip].
	Policy  *scoring.Policy
	KVAtlas scoring.KVAtlasOptions
	// Shadow, if set, decides beside the policy, and nobody acts on it: what would a
	// change do? ShadowReport, if set too, is told of each decision, by the
	// goroutine that made it; totals are in [Snapshot]. See [scoring.Shadow].
	Shadow       *scoring.Policy
	ShadowReport func(scoring.ShadowReport)
	// InFlight configures the account of requests under way, see [Atlas.Begin].
	InFlight scoring.InFlightOptions
	// Speculate counts the blocks of requests under way as held, before the
	// engine announces them: siblings that come at once then go together. Each
	// prompt is hashed whole for it; set MemoBytes too.
	Speculate   bool
	Speculation scoring.SpeculationOptions
	// Tell, if set, is given what the other replicas of this router should hear of
	// its requests, for [Atlas.Heard] there: all then decide as if each had sent
	// everything. It is called by the goroutine of the [Trip] and must not block
	// it. How notes travel is the caller's; those of one replica must arrive in
	// order. Replicas must know the same workers by the same names: where requests
	// come to all at one instant, each uses some of them first ([scoring.Peers]).
	// With Speculate a note has 8 bytes for each block to be computed.
	Tell func(PeerNote)
	// MemoBytes bounds the memory of digests of prompts seen before, for each way
	// of hashing in the fleet: the next turn of a conversation is then not hashed
	// from its beginning. 0 is off. See [blockhash.Options].
	MemoBytes int64
	// Seeds are what engines of the fleet may have as PYTHONHASHSEED: tried, beside the
	// unset seed and "0", for workers whose description is found from their events
	// ([Worker.Auto]).
	Seeds []blockhash.Seed
	// Logger is told, once each, what is found of automatic workers and what
	// contradicts a description; nil means nobody.
	Logger *slog.Logger
	// Observer, if set, is told how long decisions take, for histograms.
	Observer Observer
}

// Atlas knows which worker of a fleet holds which blocks. It is made by [New],
// must not be copied, and all its methods are safe for concurrent use: matching
// takes no lock that applying events holds for long, and the events of
// one worker are applied in the order of the calls.
type Atlas struct {
	options     Options
	policy      *scoring.Policy
	shadow      *scoring.Shadow  // nil without Options.Shadow
	learner     *scoring.KVAtlas // nil with a policy of the caller's
	flights     *scoring.InFlight
	speculation *scoring.Speculation // nil if off
	peers       *scoring.Peers
	replica     uint64     // this one's number in notes
	mu          sync.Mutex // orders AddWorker and RemoveWorker
	fleet       atomic.Pointer[fleet]
	domains     domains
	log         *slog.Logger

	serial          uint32 // of the worker added last; guarded by mu
	matches, errors atomic.Uint64
}

// New makes an Atlas without workers. The error names the option at fault.
func New(o Options) (*Atlas, error) {
	index := radix.Options{Weights: o.Weights, MaxBytes: o.IndexBytes}
	if _, err := radix.New(index); err != nil {
		return nil, fmt.Errorf("kvatlas: %w", err)
	}
	if o.MemoBytes < 0 {
		return nil, fmt.Errorf("%w: MemoBytes is %d, want 0 (off) or more", ErrOptions, o.MemoBytes)
	}
	if o.Policy != nil && o.Policy.Name() == "" {
		return nil, fmt.Errorf("%w: Policy was not made by scoring.New", ErrOptions)
	}
	for _, s := range o.Seeds {
		if err := s.Validate(); err != nil {
			return nil, fmt.Errorf("%w: Seeds: %w", ErrOptions, err)
		}
	}
	a := &Atlas{options: o, policy: o.Policy, log: o.Logger, domains: domains{options: index, memoBytes: o.MemoBytes}}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if a.policy == nil {
		if a.learner, err = scoring.NewKVAtlas(o.KVAtlas); err != nil {
			return nil, fmt.Errorf("kvatlas: %w", err)
		}
		a.policy = a.learner.Policy()
	}
	if o.Shadow != nil {
		if a.shadow, err = scoring.NewShadow(a.policy, o.Shadow, o.ShadowReport); err != nil {
			return nil, fmt.Errorf("kvatlas: %w", err)
		}
	} else if o.ShadowReport != nil {
		return nil, fmt.Errorf("%w: ShadowReport is set without Shadow, so that there is nothing to report", ErrOptions)
	}
	if a.flights, err = scoring.NewInFlight(o.InFlight); err != nil {
		return nil, fmt.Errorf("kvatlas: %w", err)
	}
	if o.Speculate {
		if a.speculation, err = scoring.NewSpeculation(o.Speculation); err != nil {
			return nil, fmt.Errorf("kvatlas: %w", err)
		}
	}
	a.replica = rand.Uint64N(math.MaxUint64) + 1
	if a.peers, err = scoring.NewPeers(scoring.PeersOptions{InFlight: a.flights, Speculation: a.speculation, KVAtlas: a.learner, Replica: a.replica}); err != nil {
		return nil, fmt.Errorf("kvatlas: %w", err)
	}
	a.fleet.Store(&fleet{byName: map[string]*worker{}, bySource: map[kvevents.Source]*worker{}})
	return a, nil
}

// fleet is what is registered at one moment. It is replaced, never changed, so
// that matching needs no lock to read it.
type fleet struct {
	workers  []*worker // in order of registration
	byName   map[string]*worker
	bySource map[kvevents.Source]*worker
}

func (f *fleet) with(w *worker) *fleet {
	n := &fleet{
		workers: append(slices.Clip(f.workers), w), byName: maps.Clone(f.byName), bySource: maps.Clone(f.bySource),
	}
	n.byName[w.Name] = w
	n.bySource[w.source()] = w
	return n
}

func (f *fleet) without(w *worker) *fleet {
	n := &fleet{byName: maps.Clone(f.byName), bySource: maps.Clone(f.bySource)}
	delete(n.byName, w.Name)
	delete(n.bySource, w.source())
	for _, o := range f.workers {
		if o != w {
			n.workers = append(n.workers, o)
		}
	}
	return n
}

// now is the clock of the account of requests under way.
func (a *Atlas) now() time.Time {
	if a.options.InFlight.Now != nil {
		return a.options.InFlight.Now()
	}
	return time.Now()
}

// current is the fleet of this moment, which the caller must not change. An Atlas
// that New did not make has none.
func (a *Atlas) current() *fleet {
	if f := a.fleet.Load(); f != nil {
		return f
	}
	return &fleet{}
}

func (a *Atlas) find(name string) (*worker, error) {
	w, ok := a.current().byName[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrUnknownWorker, quoted(name))
	}
	return w, nil
}

func sameWorker(a, b *Worker) bool { return reflect.DeepEqual(a, b) }

package kvevents

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

const (
	// ErrSubscriberClosed is returned by Add after Close.
	ErrSubscriberClosed = constError("kvevents: subscriber is closed")
	// ErrTargetExists is returned by Add for a worker that is there with another
	// description: remove it first.
	ErrTargetExists = constError("kvevents: the worker is there with another description; remove it first")
)

// Target describes where a worker publishes.
type Target struct {
	// Worker names it, uniquely.
	Worker string
	// Endpoint is where rank 0 publishes, such as "tcp://10.0.0.7:5557"; rank r
	// is found as RankEndpoints says. ReplayEndpoint is likewise where replays
	// are served; empty if nowhere.
	Endpoint, ReplayEndpoint string
	// Ranks is the number of data-parallel ranks; 0 means 1.
	Ranks int
	// Endpoints and ReplayEndpoints give each rank's own in place of those
	// computed, for engines that tell them (GET /kv_event_sources).
	Endpoints, ReplayEndpoints []string
	// Topic is the topic to subscribe to; empty means all. Messages whose topic
	// only happens to begin with it are left out.
	Topic string
	// Listen binds Endpoint instead of dialing it, for engines whose publisher
	// connects. Many targets may share one bound endpoint; each then needs a
	// Topic of its own, since nothing else tells them apart, and the rank is
	// read from the messages.
	Listen bool
}

func (t Target) equal(o Target) bool {
	return t.Worker == o.Worker && t.Endpoint == o.Endpoint && t.ReplayEndpoint == o.ReplayEndpoint && max(t.Ranks, 1) == max(o.Ranks, 1) &&
		slices.Equal(t.Endpoints, o.Endpoints) && slices.Equal(t.ReplayEndpoints, o.ReplayEndpoints) && t.Topic == o.Topic && t.Listen == o.Listen
}

// endpoints returns the endpoints of every rank; replay is nil without replay.
func (t Target) endpoints() (live, replay []string, err error) {
	ranks := max(t.Ranks, 1)
	if t.Worker == "" {
		return nil, nil, constError("kvevents: a target needs a Worker")
	}
	if t.Ranks < 0 || t.Ranks > maxRanks {
		return nil, nil, fmt.Errorf("kvevents: worker %q has %d ranks, want 0 to %d", t.Worker, t.Ranks, maxRanks)
	}
	expand := func(name, base string, given []string) ([]string, error) {
		if len(given) == 0 {
			all, err := RankEndpoints(base, ranks)
			if err != nil {
				return nil, fmt.Errorf("%w (%s of worker %q)", err, name, t.Worker)
			}
			return all, nil
		}
		if len(given) != ranks || base != "" {
			return nil, fmt.Errorf("kvevents: worker %q has %d %ss for %d ranks and %s %q; want one a rank, or only %[3]s",
				t.Worker, len(given), name, ranks, name, base)
		}
		return slices.Clone(given), nil
	}
	if t.Listen {
		if t.Topic == "" || len(t.Endpoints) > 0 {
			return nil, nil, fmt.Errorf("kvevents: worker %q listens, which needs a Topic of its own and one Endpoint", t.Worker)
		}
		live = slices.Repeat([]string{t.Endpoint}, ranks)
	} else if live, err = expand("Endpoint", t.Endpoint, t.Endpoints); err != nil {
		return nil, nil, err
	}
	if t.ReplayEndpoint != "" || len(t.ReplayEndpoints) > 0 {
		if replay, err = expand("ReplayEndpoint", t.ReplayEndpoint, t.ReplayEndpoints); err != nil {
			return nil, nil, err
		}
	}
	for _, e := range slices.Concat(live, replay) {
		if !t.Listen && (strings.HasPrefix(e, "tcp://*") || strings.HasPrefix(e, "tcp://0.0.0.0:") || strings.HasPrefix(e, "tcp://[::]:")) {
			return nil, nil, fmt.Errorf("kvevents: worker %q at %s: an address to bind, want the worker's host", t.Worker, e)
		}
	}
	return live, replay, nil
}

// SubscriberOptions configures a [Subscriber]. Handler is required.
type SubscriberOptions struct {
	// Handler receives the events.
	Handler Handler
	// Transport makes the sockets; nil means zmtp.Native. Socket are their
	// options.
	Transport zmtp.Transport
	Socket    zmtp.Options
	// Stream is the template of every stream; Worker, Rank and Replay are
	// filled in.
	Stream StreamOptions
	// Resume, if set, is asked by Add at which position to go on with a source
	// ([Stream.Resume]); ok is false for a source without a past. Handler must be a
	// [SourceConfirmer]. An Atlas has both (Atlas.Resume, Atlas.Handler).
	Resume func(Source) (p Position, ok bool)
	// SilentAfter is how long a source may publish nothing before it is called
	// silent: an engine that was configured for events and sends none. 0 means
	// never. An idle engine is silent too.
	SilentAfter time.Duration
	// Hooks are values that have methods of BatchHook, LossHook, ClearHook,
	// StateHook or SilenceHook.
	Hooks []any
	// Logger is told of losses, clears, states and errors; nil means nobody.
	Logger *slog.Logger
}

// Subscriber follows the event streams of a fleet: one [Stream] for each rank
// of each worker, over sockets that reconnect. Add and Remove say who there
// is.
//
// All methods may be called by any goroutine at any time, but not by a Handler
// or a hook. Make one with [NewSubscriber].
type Subscriber struct {
	o      SubscriberOptions
	hooks  hooks
	ctx    context.Context
	cancel context.CancelFunc

	mu        sync.Mutex
	closed    bool
	workers   map[string]*worker
	used      map[string]string // endpoint to worker
	listeners map[string]*listener

	unattributed atomic.Uint64
}

// Unattributed returns how many messages came to bound endpoints under topics
// of no worker.
func (s *Subscriber) Unattributed() uint64 { return s.unattributed.Load() }

type worker struct {
	target  Target
	sources []*source
}

// hooks are Hooks sorted by kind.
type hooks struct {
	batch   []BatchHook
	loss    []LossHook
	clear   []ClearHook
	state   []StateHook
	silence []SilenceHook
}

func sortHooks(all []any) (h hooks, err error) {
	for i, v := range all {
		before := len(h.batch) + len(h.loss) + len(h.clear) + len(h.state) + len(h.silence)
		if x, ok := v.(BatchHook); ok {
			h.batch = append(h.batch, x)
		}
		if x, ok := v.(LossHook); ok {
			h.loss = append(h.loss, x)
		}
		if x, ok := v.(ClearHook); ok {
			h.clear = append(h.clear, x)
		}
		if x, ok := v.(StateHook); ok {
			h.state = append(h.state, x)
		}
		if x, ok := v.(SilenceHook); ok {
			h.silence = append(h.silence, x)
		}
		if before == len(h.batch)+len(h.loss)+len(h.clear)+len(h.state)+len(h.silence) {
			return h, fmt.Errorf("kvevents: Hooks[%d] is a %T, which is no hook", i, v)
		}
	}
	return h, nil
}

// NewSubscriber returns a subscriber without workers. It must be closed.
func NewSubscriber(o SubscriberOptions) (*Subscriber, error) {
	if o.Handler == nil {
		return nil, constError("kvevents: NewSubscriber needs a Handler")
	}
	if _, confirms := o.Handler.(SourceConfirmer); o.Resume != nil && !confirms {
		return nil, constError("kvevents: Resume needs a Handler that is a SourceConfirmer")
	}
	if o.SilentAfter < 0 {
		return nil, fmt.Errorf("kvevents: SilentAfter is %v, want 0 or more", o.SilentAfter)
	}
	if err := o.Stream.validate(); err != nil {
		return nil, err
	}
	h, err := sortHooks(o.Hooks)
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Subscriber{o: o, hooks: h, workers: map[string]*worker{}, used: map[string]string{}, listeners: map[string]*listener{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

func (s *Subscriber) transport() zmtp.Transport {
	if s.o.Transport != nil {
		return s.o.Transport
	}
	return zmtp.Native
}

// Add begins to follow a worker, which need not run yet. Adding what is there
// does nothing. It returns an error for a description that makes no sense or
// shares an endpoint with another worker, ErrTargetExists, or
// ErrSubscriberClosed.
func (s *Subscriber) Add(t Target) error {
	live, replay, err := t.endpoints()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrSubscriberClosed
	}
	if w, ok := s.workers[t.Worker]; ok {
		if w.target.equal(t) {
			return nil
		}
		return fmt.Errorf("%w (%q)", ErrTargetExists, t.Worker)
	}
	keys := slices.Clone(replay)
	if t.Listen {
		keys = append(keys, t.Endpoint+" topic "+t.Topic)
	} else {
		keys = append(keys, live...)
	}
	for i, key := range keys {
		if other, taken := s.used[key]; taken {
			return fmt.Errorf("kvevents: endpoint %s of worker %q is also one of worker %q", key, t.Worker, other)
		}
		if slices.Contains(keys[:i], key) {
			return fmt.Errorf("kvevents: endpoint %s is given twice for worker %q", key, t.Worker)
		}
	}
	w := &worker{target: t}
	for rank := range live {
		src, err := s.newSource(t, int32(rank), live[rank], at(replay, rank))
		if err == nil {
			w.sources = append(w.sources, src)
			if !t.Listen {
				err = src.dial()
			}
		}
		if err != nil {
			s.stop(w)
			return err
		}
	}
	if t.Listen {
		if err := s.listen(w); err != nil {
			s.stop(w)
			return err
		}
	}
	for _, key := range keys {
		s.used[key] = t.Worker
	}
	s.workers[t.Worker] = w
	return nil
}

func at(all []string, i int) string {
	if i < len(all) {
		return all[i]
	}
	return ""
}

// Remove stops following a worker and reports whether it was there. When it
// returns, the Handler has been given a last Clear with ClearRemoved for each
// rank, and is called no more for this worker.
func (s *Subscriber) Remove(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.workers[name]
	if !ok {
		return false
	}
	delete(s.workers, name)
	for key, owner := range s.used {
		if owner == name {
			delete(s.used, key)
		}
	}
	s.stop(w)
	return true
}

// stop ends all goroutines of a worker.
func (s *Subscriber) stop(w *worker) {
	for _, src := range w.sources {
		src.cancel()
	}
	if w.target.Listen {
		s.unlisten(w)
	}
	for _, src := range w.sources {
		src.close()
	}
}

// Restarted tells that a worker was restarted at a time of its own clock, as
// an orchestrator may know before the stream does; see Stream.Restarted. It
// reports whether the worker is there.
func (s *Subscriber) Restarted(name string, at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.workers[name]
	if ok {
		for _, src := range w.sources {
			src.do(func(now time.Time) { src.stream.Restarted(now, float64(at.UnixNano())/1e9) })
		}
	}
	return ok
}

// Disprove tells that a rank's engine turned out to hold less than was predicted, as a
// request shows that was reported fewer cached tokens; see Stream.Disprove. It changes
// nothing where the stream is exact: then blocks were evicted while the request waited.
// It reports whether the source is there.
func (s *Subscriber) Disprove(src Source) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.workers[src.Worker]
	if !ok || src.Rank < 0 || int(src.Rank) >= len(w.sources) {
		return false
	}
	of := w.sources[src.Rank]
	of.do(func(now time.Time) { of.stream.Disprove(now) })
	return true
}

// Close removes every worker. It may be called again; the error is always nil.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.cancel()
	for name, w := range s.workers {
		s.stop(w)
		delete(s.workers, name)
	}
	clear(s.used)
	return nil
}

// SourceStatus is what is known of one source.
type SourceStatus struct {
	Source
	Endpoint, ReplayEndpoint string
	Status
	Stats StreamStats
	// Connected: the live connection stands. Always true for a worker that
	// dials us, and for transports that do not tell.
	Connected bool
	// LastArrival is when the last live message came; Lag how much later than
	// its timestamp that was, on two clocks.
	LastArrival time.Time
	Lag         time.Duration
	// Silent: nothing came for SilentAfter.
	Silent bool
	// Foreign counts messages whose topic or rank is not this worker's.
	Foreign uint64
	// Dropped counts messages that our own socket had to drop.
	Dropped uint64
	// LastError is the last one of a connection or of a replay, LastErrorAt its
	// time.
	LastError   error
	LastErrorAt time.Time
}

// AppendStatus appends the status of every source, by worker and rank.
func (s *Subscriber) AppendStatus(dst []SourceStatus) []SourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := len(dst)
	for _, w := range s.workers {
		for _, src := range w.sources {
			dst = append(dst, src.status())
		}
	}
	slices.SortFunc(dst[from:], func(a, b SourceStatus) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.Rank, b.Rank))
	})
	return dst
}

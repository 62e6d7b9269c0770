package scoring

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hand is a clock set by hand.
type hand struct{ t time.Time }

func newHand() *hand                    { return &hand{time.Unix(1_800_000_000, 0)} }
func (h *hand) now() time.Time          { return h.t }
func (h *hand) advance(d time.Duration) { h.t = h.t.Add(d) }
func (h *hand) inFlight(t testing.TB, o InFlightOptions) *InFlight {
	t.Helper()
	o.Now = h.now
	a, err := NewInFlight(o)
	require.NoError(t, err)
	return a
}

func loadOf(t testing.TB, a *InFlight, w WorkerID) Load {
	t.Helper()
	var l Load
	require.NoError(t, a.Load(w, &l))
	return l
}

// Lengths that no prompt has, from another replica's note say, add up all the same.
func TestInFlightHugeTokens(t *testing.T) {
	a := newHand().inFlight(t, InFlightOptions{BlockSize: 1})
	a.Add(1)
	for range 3 {
		f, err := a.Begin(1, Sent{PromptTokens: math.MaxInt})
		require.NoError(t, err)
		require.NoError(t, f.Output(math.MaxInt))
	}
	l := loadOf(t, a, 1)
	require.Equal(t, Known(3*math.MaxInt32), l.PrefillTokens)
	require.Equal(t, Known(3*math.MaxInt32), l.PromptTokens)
	require.Greater(t, l.DecodeBlocks.Value, 0.)
}

func TestInFlightLife(t *testing.T) {
	h := newHand()
	a := h.inFlight(t, InFlightOptions{BlockSize: 16})
	a.Add(1)
	a.Add(2)
	f, err := a.Begin(1, Sent{PromptTokens: 100, CachedTokens: 64})
	require.NoError(t, err)
	want := Load{Requests: Known(1), Peers: Known(0), Queued: Known(1), PrefillTokens: Known(36), PromptTokens: Known(100), DecodeBlocks: Known(7), QPS: Known(1. / 60)}
	require.Equal(t, want, loadOf(t, a, 1))

	require.NoError(t, f.FirstToken())
	require.NoError(t, f.FirstToken(), "again is the same")
	want.PrefillTokens, want.Queued = Known(0), Known(0)
	require.Equal(t, want, loadOf(t, a, 1))
	require.NoError(t, f.Output(20)) // 120 tokens, 8 blocks
	require.NoError(t, f.Output(3), "never goes down")
	want.DecodeBlocks = Known(8)
	require.Equal(t, want, loadOf(t, a, 1))

	require.NoError(t, f.Finish())
	want = Load{Requests: Known(0), Peers: Known(0), Queued: Known(0), PrefillTokens: Known(0), PromptTokens: Known(0), DecodeBlocks: Known(0), QPS: Known(1. / 60)}
	require.Equal(t, want, loadOf(t, a, 1))
	for _, again := range []error{f.Finish(), f.Fail(), f.FirstToken(), f.Output(9), f.Served(2, 0), Flight{}.Finish()} {
		require.ErrorIs(t, again, ErrEnded)
	}
	require.Equal(t, want, loadOf(t, a, 1))

	h.advance(time.Minute)
	require.Zero(t, loadOf(t, a, 1).QPS.Value)
}

func TestInFlightReleasesPromptAtFirstToken(t *testing.T) {
	a := newHand().inFlight(t, InFlightOptions{ReleasePromptAtFirstToken: true})
	a.Add(1)
	f, _ := a.Begin(1, Sent{PromptTokens: 100})
	require.NoError(t, f.FirstToken())
	require.Zero(t, loadOf(t, a, 1).PromptTokens.Value)
	require.NoError(t, f.Finish())
	require.Zero(t, loadOf(t, a, 1).PromptTokens.Value)
}

func TestInFlightServedElsewhere(t *testing.T) {
	a := newHand().inFlight(t, InFlightOptions{})
	a.Add(1)
	a.Add(2)
	f, _ := a.Begin(1, Sent{PromptTokens: 100, CachedTokens: 80})
	require.ErrorIs(t, f.Served(9, 0), ErrUnknownWorker)
	require.Equal(t, 1., loadOf(t, a, 1).Requests.Value, "stays where it was")
	require.NoError(t, f.Served(2, 16))
	require.Zero(t, loadOf(t, a, 1).Requests.Value)
	require.Zero(t, loadOf(t, a, 1).PrefillTokens.Value)
	require.Equal(t, 84., loadOf(t, a, 2).PrefillTokens.Value)
	require.NoError(t, f.Served(2, 99), "the same worker changes nothing")
	require.Equal(t, 84., loadOf(t, a, 2).PrefillTokens.Value)

	// A worker that goes away takes its counts along, and a retry counts again.
	a.Remove(2)
	a.Remove(2)
	var l Load
	require.ErrorIs(t, a.Load(2, &l), ErrUnknownWorker)
	require.Equal(t, Load{}, l, "unknown, not 0")
	require.NoError(t, f.Served(1, 0))
	require.Equal(t, 100., loadOf(t, a, 1).PrefillTokens.Value)
	a.Add(2)
	require.Zero(t, loadOf(t, a, 2).Requests.Value)
	require.NoError(t, f.Fail())
	require.Zero(t, loadOf(t, a, 1).Requests.Value)
	require.Equal(t, InFlightStats{Workers: 2}, a.Stats())
}

func TestInFlightExpiresAndClockGoesBack(t *testing.T) {
	h := newHand()
	a := h.inFlight(t, InFlightOptions{TTL: time.Minute})
	a.Add(1)
	old, _ := a.Begin(1, Sent{PromptTokens: 10})
	h.advance(50 * time.Second)
	young, _ := a.Begin(1, Sent{PromptTokens: 10})
	h.advance(-time.Hour) // stands still
	require.Equal(t, 2., loadOf(t, a, 1).Requests.Value)
	third, err := a.Begin(1, Sent{PromptTokens: 10})
	require.NoError(t, err)
	h.advance(time.Hour + 10*time.Second)
	require.Equal(t, 2., loadOf(t, a, 1).Requests.Value, "the first one expired")
	require.ErrorIs(t, old.Finish(), ErrEnded)
	require.NoError(t, young.Output(1)) // a report keeps it alive
	h.advance(55 * time.Second)
	require.Equal(t, InFlightStats{Workers: 1, Requests: 1, Expired: 2}, a.Stats())
	require.ErrorIs(t, third.Finish(), ErrEnded)
	require.NoError(t, young.Finish())
}

func TestInFlightMergesScrapes(t *testing.T) {
	h := newHand()
	a := h.inFlight(t, InFlightOptions{ScrapeTTL: 10 * time.Second})
	a.Add(1)
	require.ErrorIs(t, a.Scraped(7, Load{}), ErrUnknownWorker)
	for _, v := range []float64{math.NaN(), math.Inf(1), -1} {
		for _, l := range []Load{{Running: Known(v)}, {Waiting: Known(v)}, {KVUsage: Known(v)}, {RTT: Known(v)}} {
			require.ErrorIs(t, a.Scraped(1, l), ErrFigure)
		}
	}
	require.EqualError(t, a.Scraped(1, Load{KVUsage: Known(1.5), Running: Known(3)}), "scoring: KVUsage of worker 1 is 1.5; 0 to 1 is needed")
	require.False(t, loadOf(t, a, 1).Running.Known, "nothing of it counts")
	f, _ := a.Begin(1, Sent{PromptTokens: 10})
	require.False(t, loadOf(t, a, 1).Waiting.Known, "never scraped is unknown, not 0")
	require.NoError(t, a.Scraped(1, Load{Running: Known(1), Waiting: Known(2), KVUsage: Known(0.5)}))
	_, _ = a.Begin(1, Sent{PromptTokens: 10})
	_, _ = a.Begin(1, Sent{PromptTokens: 10})
	l := loadOf(t, a, 1)
	require.Equal(t, []Gauge{Known(1), Known(4), Known(0.5), {}}, []Gauge{l.Running, l.Waiting, l.KVUsage, l.RTT})
	require.NoError(t, f.Finish())
	l = loadOf(t, a, 1)
	require.Equal(t, []Gauge{Known(0), Known(4)}, []Gauge{l.Running, l.Waiting})
	h.advance(10 * time.Second)
	l = loadOf(t, a, 1)
	require.False(t, l.Running.Known || l.Waiting.Known || l.KVUsage.Known, "too old is unknown")
	require.Equal(t, Known(2), l.Requests)

	// What ends is never taken from less than there is, and what moves ends here.
	a.Add(2)
	moved, _ := a.Begin(1, Sent{})
	require.NoError(t, a.Scraped(1, Load{Running: Known(2), Waiting: Known(0)}))
	require.NoError(t, moved.Served(2, 0))
	l = loadOf(t, a, 1)
	require.Equal(t, []Gauge{Known(1), Known(0)}, []Gauge{l.Running, l.Waiting})
	for range 2 {
		f, _ := a.Begin(1, Sent{})
		require.NoError(t, a.Scraped(1, Load{Running: Known(0), Waiting: Known(0)}))
		require.NoError(t, f.Finish())
		l = loadOf(t, a, 1)
		require.Equal(t, []Gauge{Known(0), Known(0)}, []Gauge{l.Running, l.Waiting})
	}
	before, _ := a.Begin(1, Sent{})
	a.Remove(1)
	a.Add(1)
	require.NoError(t, a.Scraped(1, Load{Running: Known(3)}))
	require.NoError(t, before.Finish())
	require.Equal(t, Known(3), loadOf(t, a, 1).Running, "is of the one before")
	l.CacheSize = Known(5)
	require.ErrorIs(t, a.Load(9, &l), ErrUnknownWorker)
	require.Equal(t, Load{CacheSize: Known(5)}, l)
}

func TestInFlightLimitsAndRefusals(t *testing.T) {
	a := newHand().inFlight(t, InFlightOptions{MaxRequests: 2})
	a.Add(1)
	_, err := a.Begin(2, Sent{})
	require.ErrorIs(t, err, ErrUnknownWorker)
	f, _ := a.Begin(1, Sent{PromptTokens: -5, CachedTokens: 99})
	require.Zero(t, loadOf(t, a, 1).PrefillTokens.Value)
	_, _ = a.Begin(1, Sent{})
	_, err = a.Begin(1, Sent{})
	require.ErrorIs(t, err, ErrTooMany)
	require.NoError(t, f.Finish())
	_, err = a.Begin(1, Sent{})
	require.NoError(t, err)
	for _, o := range []InFlightOptions{{BlockSize: -1}, {TTL: -1}, {MaxRequests: -1}, {ScrapeTTL: -1}, {MaxRequests: math.MaxInt}} {
		_, err := NewInFlight(o)
		require.ErrorIs(t, err, ErrOption)
	}
}

// TestInFlightAgainstRecount compares the running sums with a recount of a plain
// list, over random reports.
func TestInFlightAgainstRecount(t *testing.T) {
	type entry struct {
		f                        Flight
		w                        WorkerID
		prompt, uncached, out    int
		streaming, gone, counted bool
	}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		a := newHand().inFlight(t, InFlightOptions{BlockSize: 16})
		known := map[WorkerID]bool{}
		var all []*entry
		for range 400 {
			w := WorkerID(rng.IntN(4))
			switch op := rng.IntN(10); {
			case op == 0:
				a.Add(w)
				known[w] = true
			case op == 1 && rng.IntN(4) == 0:
				a.Remove(w)
				delete(known, w)
				for _, e := range all {
					if e.w == w {
						e.counted = false
					}
				}
			case op < 5:
				e := &entry{w: w, prompt: rng.IntN(100), counted: true}
				cached := rng.IntN(100)
				e.uncached = e.prompt - min(cached, e.prompt)
				var err error
				if e.f, err = a.Begin(w, Sent{PromptTokens: e.prompt, CachedTokens: cached}); !known[w] {
					require.ErrorIs(t, err, ErrUnknownWorker)
					continue
				}
				all = append(all, e)
			case len(all) > 0:
				e := all[rng.IntN(len(all))]
				var err error
				switch rng.IntN(4) {
				case 0:
					if err = e.f.FirstToken(); !e.gone {
						e.streaming, e.out = true, max(e.out, 1)
					}
				case 1:
					n := rng.IntN(60)
					if err = e.f.Output(n); !e.gone {
						e.out = max(e.out, n)
					}
				case 2:
					err = e.f.Served(w, 10)
					if !e.gone && !known[w] {
						require.ErrorIs(t, err, ErrUnknownWorker)
						continue
					}
					if !e.gone && (e.w != w || !e.counted) {
						e.w, e.counted, e.uncached = w, true, e.prompt-min(10, e.prompt)
					}
				default:
					err = e.f.Finish()
				}
				if e.gone {
					require.ErrorIs(t, err, ErrEnded)
				} else {
					require.NoError(t, err)
				}
			}
			for _, e := range all { // one that finished is known by its answer
				if !e.gone && e.f.a.slots[e.f.slot].generation != e.f.generation {
					e.gone = true
				}
			}
			for w := range known {
				var want Load
				var requests, queued, prefill, prompt, blocks int
				for _, e := range all {
					if e.gone || !e.counted || e.w != w {
						continue
					}
					requests++
					prompt += e.prompt
					blocks += (e.prompt + e.out + 15) / 16
					if !e.streaming {
						queued++
						prefill += e.uncached
					}
				}
				got := loadOf(t, a, w)
				want = got
				want.Requests, want.Queued, want.PrefillTokens = Known(float64(requests)), Known(float64(queued)), Known(float64(prefill))
				want.PromptTokens, want.DecodeBlocks = Known(float64(prompt)), Known(float64(blocks))
				require.Equal(t, want, got)
			}
		}
	}
}

func TestInFlightConcurrentSafe(t *testing.T) {
	a, err := NewInFlight(InFlightOptions{})
	require.NoError(t, err)
	for w := range WorkerID(4) {
		a.Add(w)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			cs := make([]Candidate, 4)
			for i := range cs {
				cs[i].ID = WorkerID(i)
			}
			for i := range 300 {
				f, err := a.Begin(WorkerID((g+i)%4), Sent{PromptTokens: 50})
				if err != nil {
					t.Error(err)
					return
				}
				a.Fill(cs)
				_ = f.FirstToken()
				_ = f.Served(WorkerID(i%4), 3)
				go func() { _ = f.Output(3) }() // may come after the end
				_ = f.Finish()
			}
		})
	}
	wg.Wait()
	require.Zero(t, a.Stats().Requests)
	for w := range WorkerID(4) {
		l := loadOf(t, a, w)
		require.Zero(t, l.Requests.Value+l.PrefillTokens.Value+l.PromptTokens.Value+l.DecodeBlocks.Value)
	}
}

func TestInFlightAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a := newHand().inFlight(t, InFlightOptions{})
	a.Add(1)
	cs := []Candidate{{ID: 1}}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_ = a.Scraped(1, Load{Running: Known(2), KVUsage: Known(0.5)})
		f, _ := a.Begin(1, Sent{PromptTokens: 10})
		a.Fill(cs)
		_ = f.FirstToken()
		_ = f.Output(20)
		_ = f.Served(1, 0)
		_ = f.Finish()
	}))
}

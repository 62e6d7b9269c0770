package scrape

import (
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/scoring"
)

// fakeEngine is a metrics page over real HTTP.
type fakeEngine struct {
	*httptest.Server
	asked atomic.Int64
	mu    sync.Mutex
	serve http.HandlerFunc
}

func newEngine(t testing.TB, h http.HandlerFunc) *fakeEngine {
	e := &fakeEngine{serve: h}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.asked.Add(1)
		e.mu.Lock()
		h := e.serve
		e.mu.Unlock()
		h(w, r)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *fakeEngine) now(h http.HandlerFunc) {
	e.mu.Lock()
	e.serve = h
	e.mu.Unlock()
}

func listen(t testing.TB) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s) }
}

func newScraper(t testing.TB, o Options) *Scraper {
	s, err := New(o)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func eventually(t testing.TB, f func() bool) {
	t.Helper()
	require.Eventually(t, f, 20*time.Second, 2*time.Millisecond)
}

func TestScraper(t *testing.T) {
	e := newEngine(t, text("vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_preemptions_total{engine=\"0\"} 10\n"))
	s := newScraper(t, Options{Period: 5 * time.Millisecond, Timeout: 5 * time.Second, Stale: time.Minute})
	require.Equal(t, scoring.Load{}, s.Load("a", 0), "an engine that is not known")
	require.NoError(t, s.Add("a", e.URL+"/metrics"))
	eventually(t, func() bool { return s.Load("a", 0).Running == scoring.Known(3) })
	require.False(t, s.Load("a", 0).Waiting.Known, "what it does not say is unknown")
	require.Equal(t, scoring.Load{}, s.Load("a", 1), "nor is another rank")

	e.now(text("vllm:num_requests_running{engine=\"0\"} 0\nvllm:num_preemptions_total{engine=\"0\"} 1\n"))
	eventually(t, func() bool { return s.Load("a", 0).Running == scoring.Known(0) })
	st, err := s.Status("a")
	require.NoError(t, err)
	require.Equal(t, uint64(1), st.Resets, "a counter that went back")
	require.NoError(t, st.Err)

	e.now(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) })
	eventually(t, func() bool { st, _ := s.Status("a"); return st.Failures > 0 })
	st, _ = s.Status("a")
	require.ErrorContains(t, st.Err, "503")
	require.Equal(t, scoring.Known(0), s.Load("a", 0).Running, "the last good answer is kept for a while")

	require.True(t, s.Remove("a"))
	require.False(t, s.Remove("a"))
	_, err = s.Status("a")
	require.ErrorIs(t, err, ErrUnknownEngine)
}

func TestStaleIsUnknown(t *testing.T) {
	e := newEngine(t, text("vllm:num_requests_running 3\n"))
	s := newScraper(t, Options{Period: 5 * time.Millisecond, Timeout: time.Second, Stale: 100 * time.Millisecond})
	require.NoError(t, s.Add("a", e.URL))
	eventually(t, func() bool { st, _ := s.Status("a"); return st.Pages > 0 })
	e.now(text("nothing of ours 1\n"))
	eventually(t, func() bool { return !s.Load("a", 0).Running.Known })
	st, _ := s.Status("a")
	require.ErrorIs(t, st.Err, ErrNoMetrics)
}

func TestGzip(t *testing.T) {
	e := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			http.Error(w, "want gzip", http.StatusNotAcceptable)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, "sglang:num_queue_reqs 8\n")
		z.Close()
	})
	s := newScraper(t, Options{Period: 5 * time.Millisecond, Timeout: time.Second, Gzip: true})
	require.NoError(t, s.Add("a", e.URL))
	eventually(t, func() bool { return s.Load("a", 0).Waiting == scoring.Known(8) })
}

// TestSlowEngine: one that hangs costs nobody else anything.
func TestSlowEngine(t *testing.T) {
	block := make(chan struct{})
	slow := newEngine(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-block:
		case <-r.Context().Done():
		}
	})
	defer close(block)
	fast := newEngine(t, text("vllm:num_requests_running 1\n"))
	s := newScraper(t, Options{Period: 10 * time.Millisecond})
	require.NoError(t, s.Add("slow", slow.URL))
	require.NoError(t, s.Add("fast", fast.URL))
	eventually(t, func() bool {
		st, _ := s.Status("fast")
		bad, _ := s.Status("slow")
		return st.Pages > 2 && bad.Failures > 2
	})
}

// TestHundreds: of hundreds of engines each answer is its own engine's, whatever
// others do, and those that do not answer are unknown.
func TestHundreds(t *testing.T) {
	const engines = 400
	block := make(chan struct{})
	e := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &n)
		switch n % 20 {
		case 3: // hangs
			select {
			case <-block:
			case <-r.Context().Done():
			}
		case 5:
			http.Error(w, "no", http.StatusInternalServerError)
		case 7:
			panic(http.ErrAbortHandler)
		case 9: // takes longer than a turn
			time.Sleep(60 * time.Millisecond)
			fallthrough
		default:
			fmt.Fprintf(w, "vllm:num_requests_running %d\n", n)
		}
	})
	defer close(block)
	e.Config.ErrorLog = log.New(io.Discard, "", 0)
	s := newScraper(t, Options{Period: 400 * time.Millisecond, Timeout: 2 * time.Second, Stale: time.Minute})
	for i := range engines {
		require.NoError(t, s.Add(fmt.Sprint(i), fmt.Sprintf("%s/%d", e.URL, i)))
	}
	for i := range engines {
		name := fmt.Sprint(i)
		bad := i%20 == 3 || i%20 == 5 || i%20 == 7
		eventually(t, func() bool {
			st, _ := s.Status(name)
			if bad {
				return st.Failures > 1
			}
			return st.Pages > 2
		})
		st, _ := s.Status(name)
		if bad {
			require.Zero(t, st.Pages, name)
			require.Equal(t, scoring.Load{}, s.Load(name, 0), name)
			continue
		}
		require.Zero(t, st.Failures, "%s: %v", name, st.Err)
		require.Equal(t, scoring.Known(float64(i)), s.Load(name, 0).Running)
	}
}

// TestConcurrent adds, reads and removes at once, and leaves no goroutine.
func TestConcurrent(t *testing.T) {
	e := newEngine(t, text("vllm:num_requests_running 1\n"))
	before := runtime.NumGoroutine()
	var updates atomic.Int64
	s, err := New(Options{Period: time.Millisecond, Timeout: time.Second, Updated: func(string, *Page, error) { updates.Add(1) }})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			name := fmt.Sprint(i % 2)
			for range 50 {
				_ = s.Add(name, e.URL)
				s.Load(name, 0)
				_, _ = s.Status(name)
				s.Remove(name)
			}
		})
	}
	wg.Wait()
	require.NoError(t, s.Add("a", e.URL))
	eventually(t, func() bool { return updates.Load() > 0 })
	s.Close()
	s.client.CloseIdleConnections()
	require.ErrorContains(t, s.Add("b", e.URL), "closed")
	e.CloseClientConnections()
	eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 })
}

func TestRefusals(t *testing.T) {
	_, err := New(Options{Period: -1})
	require.ErrorContains(t, err, "Options.Period")
	s := newScraper(t, Options{})
	for _, u := range []string{"", "10.0.0.1:8000", "ftp://h/metrics", "http://", "http://[::1"} {
		require.ErrorContains(t, s.Add("a", u), "not a URL", u)
	}
}

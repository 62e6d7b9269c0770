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
	"strings"
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

// patience is a time-out where none is to pass: the machine may stand still for minutes.
const patience = time.Hour

// eventually looks again and again. It counts looks, not time, in which the machine may
// have stood still.
func eventually(t testing.TB, f func() bool) {
	t.Helper()
	for range 10_000 {
		if f() {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	require.Fail(t, "it never happens")
}

func TestScraper(t *testing.T) {
	e := newEngine(t, text("vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_preemptions_total{engine=\"0\"} 10\n"))
	s := newScraper(t, Options{Period: 5 * time.Millisecond, Timeout: patience, Stale: patience})
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
	coding := [...]string{"gzip", "GZIP", "x-gzip"}
	var asked atomic.Int64
	e := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			http.Error(w, "want gzip", http.StatusNotAcceptable)
			return
		}
		w.Header().Set("Content-Encoding", coding[asked.Add(1)%3])
		z := gzip.NewWriter(w)
		fmt.Fprint(z, "sglang:num_queue_reqs 8\n")
		z.Close()
	})
	s := newScraper(t, Options{Period: 5 * time.Millisecond, Timeout: time.Second, Gzip: true})
	require.NoError(t, s.Add("a", e.URL))
	eventually(t, func() bool { st, _ := s.Status("a"); return st.Pages > 5 && s.Load("a", 0).Waiting == scoring.Known(8) })
	st, _ := s.Status("a")
	require.Zero(t, st.Failures)
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
	for u, why := range map[string]string{
		"": "http://", "10.0.0.1:8000": "first path segment", "ftp://h/metrics": "want http:// or https://", "http://": "no host", "http://:8000/metrics": "no host",
		"http://[::1": "missing ']'", "http://h:0/metrics": "port 0, want 1 to 65535", "http://h:65536/metrics": "port 65536, want 1 to 65535", "http://h:99999/": "port 99999",
		"http://h:x/": "invalid port", "http://h/metrics#a": "fragment", "http://h/metrics#": "fragment", "http://h/metrics?a=%zz": `invalid URL escape "%zz"`,
		"http://h/metrics?a=b c": "%20 for a space", "http://h/metrics?a=ä": "must be escaped",
	} {
		err := s.Add("a", u)
		require.ErrorContains(t, err, `scrape: engine "a": `, u)
		require.ErrorContains(t, err, "not a URL such as http://10.0.0.1:8000/metrics: ", u)
		require.ErrorContains(t, err, why, u)
	}
	require.ErrorContains(t, s.Add("", "http://h/metrics"), "has no name")
	for _, u := range []string{"http://127.0.0.1:1/metrics?a=%20b;c&d", "http://127.0.0.1:65535", "http://[::1]:1/m%23"} {
		require.NoError(t, s.Add("a", u))
	}
}

// TestNotMade: a scraper that is not one knows nothing and takes nothing.
func TestNotMade(t *testing.T) {
	for _, s := range []*Scraper{nil, new(Scraper)} {
		require.Equal(t, error(ErrScraper), s.Add("a", "http://h/metrics"))
		require.False(t, s.Remove("a"))
		require.Equal(t, scoring.Load{}, s.Load("a", 0))
		_, ok := s.Rank("a", 0)
		require.False(t, ok)
		_, err := s.Status("a")
		require.Equal(t, error(ErrScraper), err)
		s.Close()
	}
}

// TestErrorsNameThePage: whatever goes wrong, the error has the URL that was added, without its
// password; and lines that were not readable are counted also where nothing else was there.
func TestErrorsNameThePage(t *testing.T) {
	e := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/status":
			http.Error(w, "busy", http.StatusServiceUnavailable)
		case "/nothing":
			fmt.Fprint(w, "up 1\n")
		case "/unreadable":
			fmt.Fprint(w, "vllm:num_requests_running x\n")
		case "/json":
			fmt.Fprint(w, "[")
		case "/coding":
			w.Header().Set("Content-Encoding", "br")
			fmt.Fprint(w, "x")
		case "/cut":
			w.Header().Set("Content-Length", "10")
			fmt.Fprint(w, "x")
		}
	})
	for _, client := range []*http.Client{nil, {Transport: &http.Transport{}}} {
		s := newScraper(t, Options{Client: client, Period: 5 * time.Millisecond, Timeout: 5 * time.Second})
		for path, want := range map[string]string{
			"/loop": "stopped after 10 redirects", "/status": "503 Service Unavailable", "/nothing": "no metric of a known engine", "/unreadable": "could be read",
			"/json": "page of JSON", "/coding": `Content-Encoding is "br", want gzip or none`, "/cut": "unexpected EOF",
		} {
			require.NoError(t, s.Add(path, e.URL+path))
			eventually(t, func() bool { st, _ := s.Status(path); return st.Failures > 1 })
			st, _ := s.Status(path)
			require.ErrorContains(t, st.Err, "scrape: "+e.URL+path+": ")
			require.ErrorContains(t, st.Err, want)
			require.Equal(t, 1, strings.Count(st.Err.Error(), "scrape: "))
			require.Equal(t, path == "/unreadable", st.Unreadable > 0, path)
		}
		st, _ := s.Status("/unreadable")
		require.ErrorIs(t, st.Err, ErrUnreadable)
		require.NoError(t, s.Add("secret", strings.Replace(e.URL, "//", "//me:sesame@", 1)+"/status"))
		eventually(t, func() bool { st, _ := s.Status("secret"); return st.Failures > 0 })
		st, _ = s.Status("secret")
		require.NotContains(t, st.Err.Error(), "sesame")
		require.ErrorContains(t, st.Err, "me:xxxxx@")
	}
}

package scrape

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/scoring"
)

// promclient serves metrics by Python's prometheus_client and returns its URL. Where
// that is not installed the test is skipped, except in CI.
func promclient(t *testing.T, mode string) string {
	python := "../.venv-prometheus/bin/python"
	if _, err := os.Stat(python); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("prometheus_client is not installed: make deps")
		}
		t.Skip("needs Python's prometheus_client: make deps")
	}
	cmd := exec.Command(python, "testdata/promclient/server.py", mode)
	var log strings.Builder
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	port, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err, "%s", &log)
	address := "http://127.0.0.1:" + strings.TrimSpace(port)
	eventually(t, func() bool {
		resp, err := http.Get(address + "/metrics")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return address
}

// TestPrometheusClient: of the real client's three ways to serve, two can select;
// what is read is the same in every turn, and what appears later is found.
func TestPrometheusClient(t *testing.T) {
	for mode, selects := range map[string]bool{"vllm": true, "mounted": true, "multiprocess": false} {
		t.Run(mode, func(t *testing.T) {
			address := promclient(t, mode)
			var turns, lora atomic.Int64
			lora.Store(-1)
			at := -1
			for i, n := range names {
				if n.name == "vllm:lora_requests_info" {
					at = i
				}
			}
			s := newScraper(t, Options{Period: 20 * time.Millisecond, Timeout: patience, Stale: patience, Updated: func(_ string, p *Page, err error) {
				if err != nil {
					t.Error(err)
					return
				}
				want := scoring.Load{Running: scoring.Known(3), Waiting: scoring.Known(2), KVUsage: scoring.Known(.25)}
				if len(p.Ranks) != 1 || p.Ranks[0].Load != want || p.Ranks[0].Queries != scoring.Known(10) || p.Ranks[0].Preemptions != scoring.Known(10) {
					t.Errorf("turn %d: %+v", turns.Load(), p.Ranks)
				}
				if turns.Add(1); p.seen>>at&1 != 0 {
					lora.CompareAndSwap(-1, turns.Load())
				}
			}})
			require.NoError(t, s.Add("a", address+"/metrics"))
			eventually(t, func() bool { return turns.Load() > 8 })
			st, err := s.Status("a")
			require.NoError(t, err)
			require.Equal(t, selects, st.Selected)
			require.Zero(t, st.Resets)

			resp, err := http.Get(address + "/appear")
			require.NoError(t, err)
			resp.Body.Close()
			eventually(t, func() bool { return lora.Load() > 0 })
			st, _ = s.Status("a")
			require.Equal(t, selects, st.Selected)
		})
	}
}

const (
	some = "vllm:num_requests_running{engine=\"0\"} 3\nvllm:num_requests_waiting{engine=\"0\"} 1\n"
	more = some + "vllm:num_preemptions_total{engine=\"0\"} 2\n"
)

// filler makes a page long enough to be worth selecting from.
var filler = strings.Repeat("something_else{with=\"a label\"} 1\n", 300)

// TestSelection walks through what engines may answer to a selection; whatever it
// is, the turn gives what the whole page has.
func TestSelection(t *testing.T) {
	var asked []string
	answer := func(selected func(w http.ResponseWriter), whole string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			what := "whole"
			if r.URL.Query().Has("name[]") {
				if what = "selected"; strings.HasSuffix(r.URL.Path, "/") {
					what = "selected/"
				}
			}
			asked = append(asked, what)
			if what == "whole" {
				fmt.Fprint(w, whole)
				return
			}
			selected(w)
		}
	}
	page := func(text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { fmt.Fprint(w, text) }
	}
	notFound := func(w http.ResponseWriter) { http.Error(w, "no", http.StatusNotFound) }
	e := newEngine(t, nil)
	u, err := url.Parse(e.URL + "/metrics?token=x")
	require.NoError(t, err)
	o := Options{Timeout: patience}
	var s *selection
	restart := func() {
		f := newFetcher(&o, http.DefaultClient, u)
		t.Cleanup(f.close)
		whole, err := f.request(u.String())
		require.NoError(t, err)
		s = &selection{fetcher: f, whole: whole}
	}
	// turn reads once and checks the answer, whether it was selected, and what was asked.
	turn := func(h http.HandlerFunc, preemptions, selected bool, want ...string) {
		t.Helper()
		var p Page
		asked = nil
		e.now(h)
		got, err := s.read(t.Context(), &p, new(bytes.Buffer))
		require.NoError(t, err)
		require.Equal(t, selected, got)
		require.Equal(t, want, asked)
		require.Equal(t, scoring.Known(3), p.Ranks[0].Load.Running)
		require.Equal(t, preemptions, p.Ranks[0].Preemptions.Known)
	}
	works := answer(page(more), more+filler)

	restart()
	turn(works, true, false, "whole")
	require.Contains(t, s.ways[0].URL.RawQuery, "token=x&name%5B%5D=vllm%3Anum_requests_running")
	require.NotContains(t, s.ways[0].URL.RawQuery, "sglang")
	turn(works, true, true, "selected")
	turn(works, true, true, "selected")
	s.again = time.Now() // minutes later
	turn(works, true, false, "whole")
	turn(works, true, true, "selected")
	// Another engine took its place, which answers less than it has.
	turn(answer(page(some), more+filler), true, false, "selected", "whole")
	turn(answer(page(some), more+filler), true, false, "selected/", "whole")
	turn(answer(page(some), more+filler), true, false, "whole")
	s.again = time.Now()
	turn(works, true, false, "whole")
	turn(works, true, true, "selected")
	// It has no such metric any more: the whole page says so, and is believed.
	turn(answer(page(some), some+filler), false, false, "selected", "whole")
	turn(answer(page(some), some+filler), false, true, "selected/")

	for what, bad := range map[string]func(http.ResponseWriter){
		"not found": notFound, "empty": page(""), "another rank's": page(strings.ReplaceAll(more, "3", "x")), "JSON": page("[{}]"),
	} {
		t.Log(what)
		restart()
		turn(answer(bad, more+filler), true, false, "whole")
		turn(answer(bad, more+filler), true, false, "selected", "whole")
		turn(answer(bad, more+filler), true, false, "selected/", "whole")
		turn(answer(bad, more+filler), true, false, "whole")
	}

	restart() // all of it comes whatever is asked for
	all := answer(page(more+filler), more+filler)
	turn(all, true, false, "whole")
	turn(all, true, false, "selected")
	turn(all, true, false, "selected/")
	turn(all, true, false, "whole")

	restart() // a rank less than the whole page
	two := more + "vllm:num_requests_running{engine=\"1\"} 1\n"
	turn(answer(page(more), two+filler), true, false, "whole")
	turn(answer(page(more), two+filler), true, false, "selected", "whole")

	restart() // short pages are not worth it
	turn(answer(page(more), more), true, false, "whole")
	turn(answer(page(more), more), true, false, "whole")

	o.Whole = true
	restart()
	turn(works, true, false, "whole")
	turn(works, true, false, "whole")
	o.Whole = false

	// While the engine is down nothing is learnt from it.
	restart()
	turn(works, true, false, "whole")
	turn(works, true, true, "selected")
	down := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "starting", http.StatusServiceUnavailable) }
	hangUp := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for _, h := range []http.HandlerFunc{down, hangUp} {
		e.now(h)
		_, err := s.read(t.Context(), new(Page), new(bytes.Buffer))
		require.Error(t, err)
	}
	turn(works, true, true, "selected")
}

// TestAnswers: a connection is kept where it can be, and what ends an answer is
// not taken for the next.
func TestAnswers(t *testing.T) {
	for what, c := range map[string]struct {
		answer string
		want   string // of the error; "" = the page
		kept   bool
	}{
		"length":                   {"HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\nvllm:num_requests_running 3\n", "", true},
		"length, then hangs up":    {"HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\nvllm:num_requests_running 3\n", "", false},
		"chunks":                   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nvllm:\r\n17\r\nnum_requests_running 3\n\r\n0\r\n\r\n", "", true},
		"to the end":               {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nvllm:num_requests_running 3\n", "", false},
		"HTTP/1.0":                 {"HTTP/1.0 200 OK\r\n\r\nvllm:num_requests_running 3\n", "", false},
		"informational":            {"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\nvllm:num_requests_running 3\n", "", true},
		"nothing but informations": {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 9), "informational", false},
		"cut":                      {"HTTP/1.1 200 OK\r\nContent-Length: 29\r\n\r\nvllm:num_requests_running 3\n", "EOF", false},
		"status":                   {"HTTP/1.1 500 Oh\r\nContent-Length: 1\r\n\r\nx", "500 Oh", true},
		"not HTTP":                 {"vllm:num_requests_running 3\n", "malformed HTTP", false},
		"not gzip":                 {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 28\r\n\r\nvllm:num_requests_running 3\n", "gzip", false},
		"endless head":             {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 3*MaxPage), "EOF", false},
		"endless page":             {"HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x 1\n", MaxPage), "at most", false},
	} {
		t.Run(what, func(t *testing.T) {
			l := listen(t)
			connections := make(chan bool, 20)
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					connections <- true
					go func() {
						defer conn.Close()
						in := bufio.NewReader(conn)
						for {
							r, err := http.ReadRequest(in)
							if err != nil {
								return
							}
							if r.UserAgent() == "" || r.Host != l.Addr().String() {
								t.Errorf("%v", r)
							}
							if _, err = io.WriteString(conn, c.answer); err != nil || !c.kept {
								return
							}
						}
					}()
				}
			}()
			u, err := url.Parse("http://" + l.Addr().String() + "/metrics")
			require.NoError(t, err)
			f := newFetcher(&Options{Timeout: patience}, nil, u)
			defer f.close()
			r, err := f.request(u.String())
			require.NoError(t, err)
			s := selection{fetcher: f, whole: r}
			var in inbox
			for i := range 6 {
				var p Page
				var body bytes.Buffer
				err := error(errNotYet)
				if i%2 == 1 && s.ask() { // as turns do
					time.Sleep(20 * time.Millisecond)
					_, err = s.arrived(&p, &in, &body)
				}
				if err == errNotYet {
					_, err = s.read(t.Context(), &p, &body)
				}
				if c.want != "" {
					require.ErrorContains(t, err, c.want)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, scoring.Known(3), p.Ranks[0].Load.Running)
			}
			if c.kept {
				require.Len(t, connections, 1)
			} else {
				require.GreaterOrEqual(t, len(connections), 6)
			}
		})
	}
}

// TestLateAnswer: an answer that is not there with the next turn, or not all of
// it, is waited for, and read when it comes.
func TestLateAnswer(t *testing.T) {
	l := listen(t)
	u, err := url.Parse("http://" + l.Addr().String() + "/metrics")
	require.NoError(t, err)
	f := newFetcher(&Options{Timeout: patience}, nil, u)
	defer f.close()
	require.NoError(t, f.conn.dial(t.Context(), time.Now().Add(20*time.Second)))
	conn, err := l.Accept()
	require.NoError(t, err)
	defer conn.Close()
	requests := bufio.NewReader(conn)
	r, err := f.request(u.String())
	require.NoError(t, err)
	s := selection{fetcher: f, whole: r}
	answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(filler)+len(more), filler+more)
	for _, there := range []int{0, 1, 30, 60, len(answer) - 1} {
		if !s.ask() {
			require.NotEqual(t, "linux", runtime.GOOS)
			t.Skip("answers are always waited for")
		}
		_, err = http.ReadRequest(requests)
		require.NoError(t, err)
		_, err = io.WriteString(conn, answer[:there])
		require.NoError(t, err)
		time.Sleep(10 * time.Millisecond)
		var p Page
		var in inbox
		var body bytes.Buffer
		_, err = s.arrived(&p, &in, &body)
		require.Equal(t, errNotYet, err)
		go func() {
			time.Sleep(10 * time.Millisecond)
			_, _ = io.WriteString(conn, answer[there:])
		}()
		_, err = s.read(t.Context(), &p, &body)
		require.NoError(t, err, there)
		require.Equal(t, scoring.Known(3), p.Ranks[0].Load.Running)
	}
}

// TestOldAnswer: an answer that waited beyond the deadline, since the process stood
// still, is not taken for one of now.
func TestOldAnswer(t *testing.T) {
	e := newEngine(t, text(more))
	u, err := url.Parse(e.URL)
	require.NoError(t, err)
	f := newFetcher(&Options{Timeout: patience}, nil, u)
	defer f.close()
	r, err := f.request(e.URL)
	require.NoError(t, err)
	s := selection{fetcher: f, whole: r}
	var p Page
	var in inbox
	var body bytes.Buffer
	_, err = s.read(t.Context(), &p, &body)
	require.NoError(t, err)
	if !s.ask() {
		require.NotEqual(t, "linux", runtime.GOOS)
		t.Skip("answers are always waited for")
	}
	eventually(t, func() bool { return e.asked.Load() == 2 })
	time.Sleep(20 * time.Millisecond)
	f.conn.deadline = time.Now().Add(-time.Millisecond)
	_, err = s.arrived(&p, &in, &body)
	require.Equal(t, errNotYet, err)
	_, err = s.read(t.Context(), &p, &body)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = s.read(t.Context(), &p, &body)
	require.NoError(t, err)
}

// TestUnasked: what an engine says unasked, as one that is tired of waiting does, is not
// taken for the answer to the next request.
func TestUnasked(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a socket cannot be looked at without waiting")
	}
	l := listen(t)
	said := make(chan bool, 20)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for {
					if _, err := http.ReadRequest(in); err != nil {
						return
					}
					fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\nvllm:num_requests_running 3\n")
					time.Sleep(time.Millisecond)
					fmt.Fprint(conn, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
					said <- true
				}
			}()
		}
	}()
	page := "http://" + l.Addr().String()
	u, err := url.Parse(page)
	require.NoError(t, err)
	f := newFetcher(&Options{Timeout: patience}, nil, u)
	defer f.close()
	r, err := f.request(page)
	require.NoError(t, err)
	s := selection{fetcher: f, whole: r}
	var p Page
	var body bytes.Buffer
	for turn := range 6 {
		if turn > 2 {
			require.False(t, s.ask())
		}
		_, err = s.read(t.Context(), &p, &body)
		require.NoError(t, err, "turn %d", turn)
		require.Equal(t, scoring.Known(3), p.Ranks[0].Load.Running)
		<-said
	}
}

// TestSwitched: an engine that begins another protocol does not hold up anybody, also
// where a client of the caller's is used.
func TestSwitched(t *testing.T) {
	e := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
		<-r.Context().Done() // until the test hangs up
		time.Sleep(time.Second)
	})
	s := newScraper(t, Options{Client: &http.Client{}, Period: 20 * time.Millisecond, Timeout: time.Second})
	require.NoError(t, s.Add("a", e.URL))
	eventually(t, func() bool { st, _ := s.Status("a"); return st.Failures > 1 })
}

// TestLongPage: one that no inbox holds is read all the same, a moderate one at once.
func TestLongPage(t *testing.T) {
	for _, size := range []int{1 << 20, 2 * maxInbox} {
		e := newEngine(t, text(strings.Repeat(filler, size/len(filler))+more))
		s := newScraper(t, Options{Period: 100 * time.Millisecond, Timeout: patience, Stale: patience})
		require.NoError(t, s.Add("a", e.URL))
		eventually(t, func() bool { st, _ := s.Status("a"); return st.Pages > 2 })
		st, _ := s.Status("a")
		require.Zero(t, st.Failures)
		require.True(t, s.Load("a", 0).Waiting.Known)
	}
}

// TestRedirect: where an engine sends its readers elsewhere, they go there.
func TestRedirect(t *testing.T) {
	e := newEngine(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics/" {
			http.Redirect(w, r, "/metrics/", http.StatusTemporaryRedirect)
			return
		}
		fmt.Fprint(w, more)
	})
	s := newScraper(t, Options{Period: 5 * time.Millisecond, Timeout: patience, Stale: patience})
	require.NoError(t, s.Add("a", e.URL+"/metrics"))
	eventually(t, func() bool { st, _ := s.Status("a"); return st.Pages > 3 && s.Load("a", 0).Running == scoring.Known(3) })
	st, _ := s.Status("a")
	require.Zero(t, st.Failures)
}

// TestShortTimeout: an answer does not wait for a turn that comes too late.
func TestShortTimeout(t *testing.T) {
	e := newEngine(t, text(more))
	s := newScraper(t, Options{Period: 400 * time.Millisecond, Timeout: 60 * time.Millisecond, Stale: time.Minute})
	require.Equal(t, 50*time.Millisecond, s.turns.each)
	require.NoError(t, s.Add("a", e.URL))
	eventually(t, func() bool { return s.Load("a", 0).Running.Known })
}

// TestOwnClient: a client of the caller's is used for everything.
func TestOwnClient(t *testing.T) {
	e := newEngine(t, text(more))
	var used atomic.Int64
	client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		used.Add(1)
		return http.DefaultTransport.RoundTrip(r)
	})}
	s := newScraper(t, Options{Client: client, Period: 5 * time.Millisecond, Timeout: patience, Stale: patience})
	require.NoError(t, s.Add("a", e.URL))
	eventually(t, func() bool { st, _ := s.Status("a"); return st.Pages > 3 })
	require.GreaterOrEqual(t, used.Load(), int64(3))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTurns: engines are spread evenly over the period, also after some have left.
func TestTurns(t *testing.T) {
	turns := newTurns(time.Second)
	require.Len(t, turns.slots, 8)
	require.Len(t, newTurns(time.Minute).slots, 480)
	require.Len(t, newTurns(3*time.Millisecond).slots, 3)
	require.Len(t, newTurns(1).slots, 1)
	var all []*engine
	for range 95 {
		e := new(engine)
		all = append(all, e)
		turns.add(e)
	}
	for i := range turns.slots {
		require.InDelta(t, 95./8, len(turns.slots[i]), 1)
	}
	for _, e := range all[:90] {
		turns.remove(e)
	}
	for range 5 {
		turns.add(new(engine))
	}
	for i := range turns.slots {
		require.LessOrEqual(t, len(turns.slots[i]), 5)
	}
}

//go:build unix

package scrape

import (
	"bufio"
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	servePages = "KVATLAS_SERVE_PAGES"
)

// idle are the engines that are polled: their page, what they answer to a
// selection if they can, and how long they take at most.
var idle = map[string]struct {
	whole, selected string
	takes           time.Duration
	engines         int // 0: 100
}{
	"vllm-whole":        {whole: "vllm/server/0.32.0/metrics-after.txt.gz"},
	"vllm-selected":     {whole: "vllm/server/0.32.0/metrics-after.txt.gz", selected: "testdata/vllm-0.32.0-selected.txt.gz"},
	"sglang-whole":      {whole: "testdata/sglang-0.5.23.txt.gz"},
	"vllm-whole-20ms":   {whole: "vllm/server/0.32.0/metrics-after.txt.gz", takes: 20 * time.Millisecond},
	"sglang-whole-20ms": {whole: "testdata/sglang-0.5.23.txt.gz", takes: 20 * time.Millisecond},
	"vllm-whole-1000":   {whole: "vllm/server/0.32.0/metrics-after.txt.gz", takes: 20 * time.Millisecond, engines: 1000},
	"sglang-whole-1000": {whole: "testdata/sglang-0.5.23.txt.gz", takes: 20 * time.Millisecond, engines: 1000},
}

// TestServePages is no test: it is the engines of BenchmarkIdle, in a process of
// their own. It serves until its input ends.
func TestServePages(t *testing.T) {
	engine, ok := idle[os.Getenv(servePages)]
	if !ok {
		t.Skip("runs for BenchmarkIdle only")
	}
	whole := recorded(t, engine.whole)
	selected := whole
	if engine.selected != "" {
		selected = recorded(t, engine.selected)
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if engine.takes > 0 {
			time.Sleep(rand.N(engine.takes))
		}
		page := whole
		if r.URL.RawQuery != "" {
			page = selected
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(page)))
		_, _ = w.Write(page)
	})
	for range cmp.Or(engine.engines, 100) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		fmt.Printf("at %s\n", l.Addr())
		go func() { _ = http.Serve(l, h) }()
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// BenchmarkIdle polls 100 or 1000 engines every second, over the loopback interface, each
// at a port of its own. cpu-ms/s is the processor time taken, of which 10 are one
// percent of a core, and µs/scrape the same for one page; the servers are another
// process. An operation is a page: they come at their own pace, so ns/op says
// nothing. With -benchtime 1x it takes five seconds each, after three to begin.
func BenchmarkIdle(b *testing.B) {
	for name := range idle {
		b.Run(name, func(b *testing.B) { benchmarkIdle(b, name) })
	}
}

func benchmarkIdle(b *testing.B, name string) {
	n := cmp.Or(idle[name].engines, 100)
	engines := exec.Command(os.Args[0], "-test.run", "^TestServePages$")
	engines.Env = append(os.Environ(), servePages+"="+name)
	stdin, err := engines.StdinPipe()
	require.NoError(b, err)
	stdout, err := engines.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, engines.Start())
	defer func() { _ = engines.Wait() }()
	defer stdin.Close()
	// Nothing but the end wakes the benchmark, which would cost, too.
	var pages, last atomic.Int64
	last.Store(3 * int64(n)) // connections stand, selections are found
	done := make(chan struct{}, 1)
	s := newScraper(b, Options{Whole: idle[name].selected == "", Timeout: 10 * time.Second, Updated: func(_ string, _ *Page, err error) {
		if err != nil {
			b.Error(err)
		}
		if pages.Add(1) == last.Load() {
			done <- struct{}{}
		}
	}})
	defer s.Close()
	lines := bufio.NewScanner(stdout)
	for i := range n {
		require.True(b, lines.Scan())
		require.NoError(b, s.Add(fmt.Sprint(i), "http://"+strings.TrimPrefix(lines.Text(), "at ")+"/metrics"))
	}
	<-done
	st, err := s.Status("0")
	require.NoError(b, err)
	require.Equal(b, idle[name].selected != "", st.Selected)
	wall, cpu := time.Now(), cpuTime()
	before := pages.Load()
	last.Store(before + int64(max(b.N, 5*n)))
	<-done
	cpu, took := cpuTime()-cpu, time.Since(wall)
	b.ReportMetric(1e3*cpu.Seconds()/took.Seconds(), "cpu-ms/s")
	b.ReportMetric(float64(cpu.Microseconds())/float64(pages.Load()-before), "µs/scrape")
	b.ReportMetric(float64(pages.Load()-before)/took.Seconds(), "pages/s")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

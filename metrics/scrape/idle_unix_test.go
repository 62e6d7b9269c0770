//go:build unix

package scrape

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	servePages  = "KVATLAS_SERVE_PAGES"
	idleEngines = 100
)

// TestServePages is no test: it is the engines of BenchmarkIdle, in a process of
// their own. It serves until its input ends.
func TestServePages(t *testing.T) {
	if os.Getenv(servePages) == "" {
		t.Skip("runs for BenchmarkIdle only")
	}
	page := pages(t)["../../testdata/vllm/server/0.32.0/metrics-after.txt.gz"]
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) })
	for range idleEngines {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		fmt.Printf("at %s\n", l.Addr())
		go func() { _ = http.Serve(l, h) }()
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// BenchmarkIdle polls 100 engines a second, over the loopback interface, each
// at a port of its own. core-% is the processor time taken, as a share of one
// core; the servers are another process. An operation is a page: they come at their
// own pace, so ns/op says nothing. Run it with -benchtime 1000x for ten seconds.
func BenchmarkIdle(b *testing.B) {
	engines := exec.Command(os.Args[0], "-test.run", "^TestServePages$")
	engines.Env = append(os.Environ(), servePages+"=1")
	stdin, err := engines.StdinPipe()
	require.NoError(b, err)
	stdout, err := engines.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, engines.Start())
	defer func() { _ = engines.Wait() }()
	defer stdin.Close()
	done := make(chan struct{}, 1000)
	s := newScraper(b, Options{Timeout: 10 * time.Second, Updated: func(_ string, _ *Page, err error) {
		if err != nil {
			b.Error(err)
		}
		select {
		case done <- struct{}{}:
		default:
		}
	}})
	lines := bufio.NewScanner(stdout)
	for i := range idleEngines {
		require.True(b, lines.Scan())
		require.NoError(b, s.Add(fmt.Sprint(i), "http://"+strings.TrimPrefix(lines.Text(), "at ")+"/metrics"))
	}
	for range 200 {
		<-done // connections stand
	}
	wall, cpu := time.Now(), cpuTime()
	for b.Loop() {
		<-done
	}
	b.ReportMetric(100*(cpuTime()-cpu).Seconds()/time.Since(wall).Seconds(), "core-%")
	b.ReportMetric(float64(b.N)/time.Since(wall).Seconds(), "pages/s")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

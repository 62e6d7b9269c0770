//go:build cgo && !windows

package libzmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

// TestMain fails when a goroutine of a socket outlives the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	var left string
	for range 100 {
		buf := make([]byte, 1<<20)
		left = string(buf[:runtime.Stack(buf, true)])
		if !strings.Contains(left, "libzmq.(*socket)") && !strings.Contains(left, "libzmq.(*watch)") && !strings.Contains(left, "zmtp.(*") {
			left = ""
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if code == 0 && left != "" {
		fmt.Fprintln(os.Stderr, "goroutines left behind:\n"+left)
		code = 1
	}
	os.Exit(code)
}

var zmtpDial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("unused") }

// Sockets and descriptors are given back: more are made, one after another, than
// the process may have at a time.
func TestSocketsAreGivenBack(t *testing.T) {
	fds := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("this system does not list open files")
		}
		return len(entries)
	}
	var before int
	for i := range 600 {
		s, err := Transport{}.NewSub(zmtp.Options{})
		must(t, err)
		must(t, s.Subscribe(""))
		must(t, s.Dial("tcp://127.0.0.1:1"))
		must(t, s.Close())
		if i == 100 {
			before = fds()
		}
	}
	// libzmq closes in its own time.
	for end := time.Now().Add(10 * time.Second); fds() > before+50; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d files open after 100 sockets, %d after 600", before, fds())
		}
	}
}

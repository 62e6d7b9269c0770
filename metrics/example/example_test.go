package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

// TestEveryPredictionIsExact: over real sockets, and after the engines were
// restarted, every prediction is what the recorded engines reported.
func TestEveryPredictionIsExact(t *testing.T) {
	f, err := newFleet(options{data: "../../testdata", laps: 2}, listen(t))
	require.NoError(t, err)
	require.NoError(t, f.serve(t.Context()))
	require.Equal(t, "worker a: 138 predictions exact, 0 over, 0 under\n"+
		"worker b: 136 predictions exact, 0 over, 0 under\n"+
		"worker c: 96 predictions exact, 0 over, 0 under", f.summary())
}

// TestTrouble: what goes wrong on purpose shows on the page.
func TestTrouble(t *testing.T) {
	l := listen(t)
	f, err := newFleet(options{data: "../../testdata", pace: 4 * time.Millisecond, silent: 100 * time.Millisecond, trouble: true}, l)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.serve(ctx) }()
	for _, want := range []string{
		`kvatlas_stream_silent{fleet="example",worker="mute"} 1`,
		`kvatlas_losses_total{cause="no_replay",fleet="example"} [1-9]`,
		`kvatlas_stream_replays_total{fleet="example",worker="b"} [1-9]`,
		`kvatlas_engine_scrapes_total{fleet="example",result="ok",worker="a"} [1-9]`,
		`kvatlas_stage_duration_seconds_count{fleet="example",stage="match"} [1-9]`,
	} {
		require.Eventually(t, func() bool {
			resp, err := http.Get("http://" + l.Addr().String() + "/metrics")
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			page, _ := io.ReadAll(resp.Body)
			return regexp.MustCompile(want).Match(page)
		}, 30*time.Second, 50*time.Millisecond, want)
	}
	cancel()
	require.NoError(t, <-done)
}

//go:build unix

package kvevents_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/kveventstest"
	"github.com/stretchr/testify/require"
)

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkIdle is the share of a core that 200 workers take while nothing
// happens, their engines in the same process included.
func BenchmarkIdle(b *testing.B) {
	s, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Handler: &meter{}, SilentAfter: time.Minute})
	require.NoError(b, err)
	defer s.Close()
	for i := range 200 {
		e, err := kveventstest.Start(kveventstest.Options{Replay: true})
		require.NoError(b, err)
		defer e.Close()
		e.Serve(make([]uint32, 100))
		require.NoError(b, s.Add(kvevents.Target{Worker: fmt.Sprint(i), Endpoint: e.Endpoint(), ReplayEndpoint: e.ReplayEndpoint()}))
	}
	time.Sleep(5 * time.Second) // start-up and its second replay
	for b.Loop() {
		cpu, start := cpuTime(b), time.Now()
		time.Sleep(20 * time.Second)
		b.ReportMetric(100*float64(cpuTime(b)-cpu)/float64(time.Since(start)), "%core")
	}
}

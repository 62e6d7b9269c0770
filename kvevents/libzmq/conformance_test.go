//go:build cgo && !windows

package libzmq

import (
	"testing"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
	"github.com/kvatlas/kvatlas/kvevents/zmtp/zmtptest"
	"github.com/pebbe/zmq4"
)

func init() {
	// The suite opens many sockets at a time, 64 publishers among them.
	if err := zmq4.SetMaxSockets(10_000); err != nil {
		panic(err)
	}
}

// pauses of a publisher that restarts, in real time.
func pauses() []time.Duration {
	if testing.Short() {
		return []time.Duration{200 * time.Millisecond}
	}
	return []time.Duration{200 * time.Millisecond, 5 * time.Second, time.Minute}
}

// The pure Go transport against real libzmq.
func TestConformanceNative(t *testing.T) {
	t.Parallel()
	zmtptest.Suite{Transport: zmtp.Native, Peers: peers, TellsLoss: true, Pauses: pauses()}.Run(t)
}

// This transport against real libzmq.
func TestConformance(t *testing.T) {
	t.Parallel()
	zmtptest.Suite{Transport: Transport{}, Peers: peers, Pauses: pauses()}.Run(t)
}

// This transport against the sockets of the pure Go one.
func TestConformanceNativePeers(t *testing.T) {
	t.Parallel()
	zmtptest.Suite{Transport: Transport{}, Peers: zmtptest.Native}.Run(t)
}

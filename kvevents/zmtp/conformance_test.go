package zmtp_test

import (
	"testing"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
	"github.com/kvatlas/kvatlas/kvevents/zmtp/zmtptest"
)

// The suite against sockets of this package. Against libzmq it runs in
// kvevents/libzmq, and in TestConformancePyZMQ where Python has pyzmq.
func TestConformance(t *testing.T) {
	zmtptest.Suite{Transport: zmtp.Native, Peers: zmtptest.Native, TellsLoss: true}.Run(t)
}

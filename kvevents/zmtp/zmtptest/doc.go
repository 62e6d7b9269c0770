// Package zmtptest is the conformance suite of a [zmtp.Transport]: one list of
// trials that the pure Go transport and the one on libzmq both pass, against
// publishers of this module, of libzmq and of pyzmq. A transport of your own can
// be tried in the same way:
//
//	func TestConformance(t *testing.T) {
//		zmtptest.Suite{Transport: mine, Peers: zmtptest.Native}.Run(t)
//	}
//
// The trials use real sockets on the loopback interface, and real time.
package zmtptest

package zmtp

import "bytes"

// The greeting of ZMTP 3.x: signature (10 bytes: ff, 8 of padding, 7f), version
// (2), mechanism (20), as-server (1), filler (31).
const (
	greetingSize  = 64
	signatureSize = 10
	mechanismSize = 20
)

// appendGreeting appends the greeting of this package: 3.1, NULL.
func appendGreeting(dst []byte) []byte {
	var g [greetingSize]byte
	g[0], g[9] = 0xff, 0x7f
	g[10], g[11] = 3, 1
	copy(g[12:], "NULL")
	return append(dst, g[:]...)
}

// checkSignature says whether the first ten bytes of a peer can be a greeting of
// ZMTP 2.0 or later. It is checked on its own because an older peer, or one that
// speaks another protocol, may send no more than that.
func checkSignature(g []byte) error {
	if g[0] != 0xff || g[9]&1 == 0 {
		return protocolErrorf("peer sent %x, which is not a greeting of ZMTP 2.0 or later", g[:signatureSize])
	}
	return nil
}

// checkVersion says whether the major version is one that is spoken here. A
// later one is: its peers fall back to the lower of the two versions.
func checkVersion(major byte) error {
	if major < 3 {
		return protocolErrorf("peer speaks ZMTP %d; 3.0 and later are accepted (libzmq 4.0 and later)", max(major, 1))
	}
	return nil
}

// parseGreeting returns the minor version to be spoken with the peer.
func parseGreeting(g *[greetingSize]byte) (minor byte, err error) {
	if err := checkSignature(g[:signatureSize]); err != nil {
		return 0, err
	}
	if err := checkVersion(g[10]); err != nil {
		return 0, err
	}
	mechanism := bytes.TrimRight(g[12:12+mechanismSize], "\x00")
	if string(mechanism) != "NULL" {
		return 0, protocolErrorf("peer wants security mechanism %q; NULL is accepted (kvevents/libzmq has CURVE and PLAIN)", mechanism)
	}
	if g[10] > 3 {
		return 1, nil
	}
	return min(g[11], 1), nil
}

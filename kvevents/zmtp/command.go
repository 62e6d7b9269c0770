package zmtp

import (
	"encoding/binary"
	"strings"
)

// Names of the commands that are understood; others are ignored.
const (
	cmdReady     = "READY"
	cmdError     = "ERROR"
	cmdSubscribe = "SUBSCRIBE"
	cmdCancel    = "CANCEL"
	cmdPing      = "PING"
	cmdPong      = "PONG"
)

// maxPingContext is how many bytes of a PING its PONG returns.
const maxPingContext = 16

// parseCommand splits the body of a command frame.
func parseCommand(body []byte) (name, data []byte, err error) {
	if len(body) == 0 || int(body[0]) > len(body)-1 || body[0] == 0 {
		return nil, nil, protocolErrorf("peer sent a command without a name")
	}
	n := 1 + int(body[0])
	return body[1:n], body[n:], nil
}

// appendCommand appends a command frame.
func appendCommand(dst []byte, name string, data ...[]byte) []byte {
	size := 1 + len(name)
	for _, d := range data {
		size += len(d)
	}
	dst = appendHeader(dst, flagCommand, size)
	dst = append(dst, byte(len(name)))
	dst = append(dst, name...)
	for _, d := range data {
		dst = append(dst, d...)
	}
	return dst
}

// ready is the metadata of a READY command that matters here.
type ready struct {
	socketType string
	identity   string
}

func appendProperty(dst []byte, name, value string) []byte {
	dst = append(dst, byte(len(name)))
	dst = append(dst, name...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

func appendReady(dst []byte, r ready) []byte {
	data := appendProperty(nil, "Socket-Type", r.socketType)
	if r.identity != "" {
		data = appendProperty(data, "Identity", r.identity)
	}
	return appendCommand(dst, cmdReady, data)
}

// parseReady reads the metadata of a READY command. Names are compared without
// regard to case; unknown ones are ignored.
func parseReady(data []byte) (r ready, err error) {
	for len(data) > 0 {
		n := 1 + int(data[0])
		if n == 1 || n+4 > len(data) {
			return r, protocolErrorf("peer sent metadata with a name cut off")
		}
		name := data[1:n]
		size := binary.BigEndian.Uint32(data[n:])
		data = data[n+4:]
		if uint64(size) > uint64(len(data)) {
			return r, protocolErrorf("peer sent metadata with a value cut off")
		}
		value := data[:size]
		data = data[size:]
		switch {
		case strings.EqualFold(string(name), "Socket-Type"):
			r.socketType = string(value)
		case strings.EqualFold(string(name), "Identity"):
			r.identity = string(value)
		}
	}
	if len(r.identity) > 255 || r.identity != "" && r.identity[0] == 0 {
		return r, protocolErrorf("peer gave an identity of %d bytes that is too long or begins with zero", len(r.identity))
	}
	return r, nil
}

// parseError reads the reason of an ERROR command.
func parseError(data []byte) error {
	if len(data) == 0 || int(data[0]) > len(data)-1 {
		return &PeerError{}
	}
	return &PeerError{Reason: string(data[1 : 1+int(data[0])])}
}

func appendError(dst []byte, reason string) []byte {
	reason = reason[:min(len(reason), 255)]
	return appendCommand(dst, cmdError, []byte{byte(len(reason))}, []byte(reason))
}

// parsePing reads a PING: how long the peer wants to be given up after, in tenths
// of a second, and the context that its PONG returns.
func parsePing(data []byte) (ttl uint16, context []byte, err error) {
	if len(data) < 2 || len(data) > 2+maxPingContext {
		return 0, nil, protocolErrorf("peer sent a PING of %d bytes; 2 to %d are accepted", len(data), 2+maxPingContext)
	}
	return binary.BigEndian.Uint16(data), data[2:], nil
}

// pingFrame is the PING that is sent. Its time to live is 0, that is none: this
// side may have nothing to send for hours, and must not be given up for that.
var pingFrame = appendCommand(nil, cmdPing, []byte{0, 0})

// compatible says which socket types may speak to each other (RFC 28 and 29).
func compatible(ours, theirs string) bool {
	switch ours {
	case "SUB":
		return theirs == "PUB" || theirs == "XPUB"
	case "PUB":
		return theirs == "SUB" || theirs == "XSUB"
	case "DEALER":
		return theirs == "ROUTER" || theirs == "DEALER" || theirs == "REP"
	case "ROUTER":
		return theirs == "DEALER" || theirs == "ROUTER" || theirs == "REQ"
	}
	return false
}

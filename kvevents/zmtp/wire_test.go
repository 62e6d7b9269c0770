package zmtp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Bytes as RFC 37 draws them.
func TestWireForms(t *testing.T) {
	require.Equal(t, "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x01NULL"+strings.Repeat("\x00", 16+1+31), string(appendGreeting(nil)))
	require.Equal(t, "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB", string(appendReady(nil, ready{socketType: "SUB"})))
	require.Equal(t, "\x04\x2b\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x02me",
		string(appendReady(nil, ready{socketType: "DEALER", identity: "me"})))
	require.Equal(t, "\x04\x07\x04PING\x00\x00", string(pingFrame))
	require.Equal(t, "\x04\x0a\x05ERROR\x03why", string(appendError(nil, "why")))
	require.Equal(t, "\x01\x00\x01\x01t\x00\x02hi", string(encodeMessage([][]byte{nil, []byte("t"), []byte("hi")}).buf))
	require.Equal(t, "\x00\xff", string(appendHeader(nil, 0, 255)))
	require.Equal(t, "\x03\x00\x00\x00\x00\x00\x00\x01\x00", string(appendHeader(nil, flagMore, 256)))
	require.Len(t, appendError(nil, strings.Repeat("x", 1000)), 9+6+1+255)
}

func TestReadyRoundTrip(t *testing.T) {
	for _, r := range []ready{{"SUB", ""}, {"DEALER", "me"}, {"ROUTER", strings.Repeat("x", 255)}} {
		body := appendReady(nil, r)
		_, size, err := readHeader(bufio.NewReader(bytes.NewReader(body)))
		require.NoError(t, err)
		name, data, err := parseCommand(body[len(body)-int(size):])
		require.NoError(t, err)
		require.Equal(t, cmdReady, string(name))
		got, err := parseReady(data)
		require.NoError(t, err)
		require.Equal(t, r, got)
	}
	// Names are without regard to case, unknown ones are ignored (RFC 37).
	got, err := parseReady([]byte("\x0bSOCKET-type\x00\x00\x00\x03PUB\x01X\x00\x00\x00\x01y"))
	require.NoError(t, err)
	require.Equal(t, ready{socketType: "PUB"}, got)
}

func TestCompatible(t *testing.T) {
	all := []string{"PUB", "SUB", "XPUB", "XSUB", "DEALER", "ROUTER", "REQ", "REP", "PUSH", "PULL", "PAIR", "", "sub"}
	ok := map[string]string{"SUB": "PUB XPUB", "PUB": "SUB XSUB", "DEALER": "ROUTER DEALER REP", "ROUTER": "DEALER ROUTER REQ", "PAIR": ""}
	for ours, theirs := range ok {
		for _, a := range all {
			require.Equal(t, bytes.Contains([]byte(" "+theirs+" "), []byte(" "+a+" ")) && a != "", compatible(ours, a), "%s with %s", ours, a)
		}
	}
}

// Trial T84: a subscription is a byte prefix, no more.
func TestTopicsAreBytePrefixes(t *testing.T) {
	var set topics
	require.False(t, set.match(nil))
	require.True(t, set.add("kv@10.0.0.1"))
	require.False(t, set.add("kv@10.0.0.1"))
	for topic, want := range map[string]bool{
		"kv@10.0.0.1":     true,
		"kv@10.0.0.1@m":   true,
		"kv@10.0.0.10@m":  true,
		"kv@10.0.0.2@m":   false,
		"kv@10.0.0.":      false,
		"":                false,
		"xkv@10.0.0.1":    false,
		"kv@10.0.0.1@a@b": true,
	} {
		require.Equal(t, want, set.match([]byte(topic)), topic)
	}
	require.False(t, set.remove("kv"))
	require.False(t, set.remove("kv@10.0.0.1"))
	require.True(t, set.remove("kv@10.0.0.1"))
	require.False(t, set.match([]byte("kv@10.0.0.1")))
	require.Zero(t, set.bytes)
	set.add("")
	require.True(t, set.match(nil))
	require.True(t, set.match([]byte("anything")))
}

// readAll parses a stream of frames as conn does, without limits of time.
func readAll(b []byte, l limits) (messages [][]string, err error) {
	br := bufio.NewReaderSize(bytes.NewReader(b), 16)
	p := newPacket(0)
	var cmd []byte
	for {
		flags, size, err := readHeader(br)
		if err != nil {
			return messages, err
		}
		if flags&flagCommand != 0 {
			if cmd, err = readCommand(br, cmd, size); err != nil {
				return messages, err
			}
			if _, _, err := parseCommand(cmd); err != nil {
				return messages, err
			}
			continue
		}
		if err := l.readMessageFrame(br, p, size); err != nil {
			return messages, err
		}
		if flags&flagMore == 0 {
			p.seal()
			var m []string
			for _, f := range p.frames {
				m = append(m, string(f))
			}
			messages = append(messages, m)
			p.reset()
		}
	}
}

// FuzzFrames: any bytes end in an error of a known kind; nothing read exceeds
// the limits or what was there; what was read, encoded again, reads the same.
func FuzzFrames(f *testing.F) {
	for _, s := range [][]byte{
		encodeMessage([][]byte{nil, []byte("12345678"), []byte("payload")}).buf,
		encodeMessage([][]byte{make([]byte, 300)}).buf,
		appendReady(nil, ready{socketType: "PUB"}),
		pingFrame,
		[]byte("\x02\x00\x00\x00\x00\x00\x00\x00\x03abc"),
		[]byte("\x02\xff\xff\xff\xff\xff\xff\xff\xff"),
		[]byte("\x01\x00\x01\x00\x01\x00\x01\x00\x01\x00\x00\x00"),
		[]byte("\x01\x01a\x04\x07\x04PING\x00\x00\x00\x01b"),
	} {
		f.Add(s)
	}
	l := limits{frame: 400, message: 500, parts: 4}
	f.Fuzz(func(t *testing.T, b []byte) {
		messages, err := readAll(b, l)
		_, limit := errors.AsType[*LimitError](err)
		_, protocol := errors.AsType[*ProtocolError](err)
		if !limit && !protocol && err != io.EOF && err != io.ErrUnexpectedEOF {
			t.Fatalf("error %T %v", err, err)
		}
		var again []byte
		total := 0
		for _, m := range messages {
			size := 0
			var frames [][]byte
			for _, frame := range m {
				if len(frame) > 400 {
					t.Fatalf("frame of %d bytes", len(frame))
				}
				size += len(frame)
				frames = append(frames, []byte(frame))
			}
			if len(m) == 0 || len(m) > 4 || size > 500 {
				t.Fatalf("message of %d frames, %d bytes", len(m), size)
			}
			total += size
			again = append(again, encodeMessage(frames).buf...)
		}
		if total > len(b) {
			t.Fatalf("%d bytes out of %d", total, len(b))
		}
		same, err := readAll(again, l)
		if err != io.EOF || fmt.Sprintf("%q", same) != fmt.Sprintf("%q", messages) {
			t.Fatalf("%q came back as %q, %v", messages, same, err)
		}
	})
}

// FuzzCommand: the parsers of command bodies take any bytes.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{
		"\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB\x08Identity\x00\x00\x00\x01x",
		"\x05READY\x00\x00\x00\x00\x00", "\x05READY\x01S\xff\xff\xff\xff", "\x05ERROR\x03why", "\x05ERROR\xff",
		"\x04PING\x00\x0a0123456789abcdef", "\x04PONG", "\x09SUBSCRIBEkv", "\x06CANCEL", "\x00", "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		name, data, err := parseCommand(body)
		if err != nil {
			return
		}
		if len(name) == 0 || 1+len(name)+len(data) != len(body) {
			t.Fatalf("%q split into %q and %q", body, name, data)
		}
		if r, err := parseReady(data); err == nil && (len(r.identity) > 255 || len(r.socketType) > len(data)) {
			t.Fatalf("%q gives %+v", data, r)
		}
		if _, context, err := parsePing(data); err == nil && len(context) > maxPingContext {
			t.Fatalf("context of %d bytes", len(context))
		}
		if parseError(data) == nil {
			t.Fatal("ERROR without an error")
		}
	})
}

// FuzzGreeting: a greeting is accepted exactly when its signature, version and
// mechanism are right.
func FuzzGreeting(f *testing.F) {
	f.Add(appendGreeting(nil))
	f.Add([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL"))
	f.Add([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00CURVE"))
	f.Add([]byte("\x01\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var g [greetingSize]byte
		copy(g[:], b)
		minor, err := parseGreeting(&g)
		want := g[0] == 0xff && g[9]&1 == 1 && g[10] >= 3 && string(g[12:32]) == "NULL"+strings.Repeat("\x00", 16)
		if want != (err == nil) || minor > 1 {
			t.Fatalf("%x: minor %d, %v", g, minor, err)
		}
	})
}

// FuzzPeer: a peer that completes the handshake and then sends any bytes cannot
// break a socket of any type, nor keep it from serving another peer.
func FuzzPeer(f *testing.F) {
	for role := range byte(4) {
		f.Add(role, byte(1), encodeMessage([][]byte{nil, []byte("12345678"), []byte("payload")}).buf)
		f.Add(role, byte(0), []byte("\x00\x03\x01kv\x00\x03\x00kv"))
		f.Add(role, byte(1), []byte("\x04\x0c\x09SUBSCRIBEkv\x04\x09\x06CANCELkv\x04\x07\x04PING\x00\x01"))
		f.Add(role, byte(1), []byte("\x02\x00\x00\x00\x00\xff\xff\xff\xff"))
	}
	f.Fuzz(func(t *testing.T, role, minor byte, b []byte) {
		o := Options{MaxFrameBytes: 1000, MaxMessageBytes: 2000, MaxParts: 8, ReceiveMessages: 16}
		var s *socket
		theirs := ""
		switch role % 4 {
		case 0:
			sub := open(t, NewSub, o)
			sub.Subscribe("")
			s, theirs = sub.socket, "PUB"
		case 1:
			s, theirs = open(t, NewDealer, o).socket, "ROUTER"
		case 2:
			s, theirs = open(t, NewPub, o).socket, "SUB"
		case 3:
			s, theirs = open(t, NewRouter, o).socket, "DEALER"
		}
		bad := connect(s)
		if err := bad.handshake(theirs, "", minor); err != nil {
			t.Fatal(err)
		}
		bad.discard()
		bad.nc.SetWriteDeadline(time.Now().Add(10 * time.Second))
		_, err := bad.nc.Write(b)
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			t.Fatal("the socket neither reads nor hangs up")
		}
		good := connect(s)
		if err := good.handshake(theirs, "good", minor); err != nil {
			t.Fatal(err)
		}
		good.nc.Close()
		bad.nc.Close()
		s.Close()
	})
}

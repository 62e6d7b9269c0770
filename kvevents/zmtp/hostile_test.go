package zmtp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a hostile publisher sends after a handshake, and the reason it is
// disconnected for.
func TestHostilePublisher(t *testing.T) {
	long := func(flags byte, size uint64) string {
		return string(binary.BigEndian.AppendUint64([]byte{flags | flagLong}, size))
	}
	for name, c := range map[string]struct {
		bytes, reason string
	}{
		"frame of 2^63":          {long(0, 1<<63), "9223372036854775808 frame bytes, the limit is 67108864"},
		"frame over limit":       {long(0, 64<<20+1), "frame bytes"},
		"message over limit":     {long(flagMore, 1<<10) + strings.Repeat("x", 1<<10) + long(0, 4<<10), "5120 message bytes, the limit is 4096"},
		"endless multipart":      {strings.Repeat("\x01\x00", 2000), "9 message parts, the limit is 8"},
		"command of 2^63":        {long(flagCommand, 1<<63), "command bytes"},
		"command without a name": {"\x04\x00", "without a name"},
		"command name cut off":   {"\x04\x02\x05x", "without a name"},
		"command with more":      {"\x05\x02\x01x", "flags 0x05"},
		"reserved flags":         {"\x80\x00", "flags 0x80"},
		"short PING":             {"\x04\x06\x04PING\x00", "PING of 1 bytes"},
		"long PING":              {"\x04\x18\x04PING" + strings.Repeat("x", 19), "PING of 19 bytes"},
		"ERROR":                  {"\x04\x0b\x05ERROR\x04nope", `peer refused: "nope"`},
		"broken ERROR":           {"\x04\x07\x05ERROR\xff", `peer refused: ""`},
		"greeting again":         {string(appendGreeting(nil)), "flags 0xff"},
		"end within a frame":     {"\x00\x05ab", "unexpected EOF"},
		"end within a header":    {"\x02\x00\x00", "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			var seen events
			o := Options{Monitor: &seen, MaxParts: 8}
			if strings.HasPrefix(name, "message") {
				o.MaxMessageBytes = 4 << 10
			}
			sub := open(t, NewSub, o)
			require.NoError(t, sub.Subscribe(""))
			good := connect(sub.socket)
			require.NoError(t, good.handshake("PUB", "", 1))
			good.discard()

			bad := connect(sub.socket)
			require.NoError(t, bad.handshake("PUB", "", 1))
			bad.discard()
			io.WriteString(bad.nc, c.bytes)
			if strings.HasPrefix(name, "end") {
				bad.nc.Close()
			}
			eventually(t, "disconnection", func() bool { return len(seen.of(Disconnected)) == 1 })
			ev := seen.of(Disconnected)[0]
			require.ErrorContains(t, ev.Err, c.reason)
			require.EqualValues(t, 2, ev.Peer)

			// Others are unaffected.
			require.NoError(t, good.send("still", "here"))
			var m Message
			require.NoError(t, sub.Recv(testContext(t), &m))
			require.Equal(t, []string{"still", "here"}, texts(&m))
			require.EqualValues(t, 1, sub.Stats().Received)
		})
	}
}

// What is wrong within a handshake, and the reason given for it.
func TestBadHandshake(t *testing.T) {
	greeting := func(change func(g []byte)) string {
		g := appendGreeting(nil)
		change(g)
		return string(g)
	}
	good := greeting(func([]byte) {})
	for name, c := range map[string]struct{ bytes, reason string }{
		"http":            {"GET / HTTP/1.1\r\n\r\n", "not a greeting"},
		"tls":             {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", "not a greeting"},
		"zmtp 1":          {"\x01\x00" + strings.Repeat("\x00", 20), "not a greeting"},
		"zmtp 2":          {"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x01\x02\x00\x00", "ZMTP 1; 3.0 and later"},
		"curve":           {greeting(func(g []byte) { copy(g[12:], "CURVE") }), `mechanism "CURVE"; NULL is accepted`},
		"mechanism ends":  {greeting(func(g []byte) { copy(g[12:], "NULLNULLNULLNULLNULL") }), "mechanism"},
		"message":         {good + "\x00\x01x", "message within the handshake"},
		"long command":    {good + "\x06\x00\x00\x00\x00\x00\x01\x00\x00", "65536 bytes; at most 4096"},
		"other command":   {good + "\x04\x05\x04PING", `command "PING" instead of READY`},
		"no socket type":  {good + "\x04\x06\x05READY", `peer is a "" socket`},
		"wrong type":      {good + string(appendReady(nil, ready{socketType: "PUSH"})), `peer is a "PUSH" socket, which a SUB does not speak to`},
		"refused":         {good + string(appendError(nil, "go away")), `peer refused: "go away"`},
		"metadata cut":    {good + "\x04\x08\x05READY\x05S", "name cut off"},
		"metadata empty":  {good + "\x04\x0b\x05READY\x00\x00\x00\x00\x00", "name cut off"},
		"value cut":       {good + "\x04\x0d\x05READY\x01S\x7f\xff\xff\xff\x00", "value cut off"},
		"zero identity":   {good + string(appendReady(nil, ready{socketType: "PUB", identity: "\x00a"})), "identity"},
		"nothing":         {"", "closed"},
		"half a greeting": {good[:20], "closed the connection"},
	} {
		t.Run(name, func(t *testing.T) {
			var seen events
			sub := open(t, NewSub, Options{Monitor: &seen})
			p := connect(sub.socket)
			var heard bytes.Buffer
			done := make(chan struct{})
			go func() {
				defer close(done)
				io.Copy(&heard, p.br)
			}()
			io.WriteString(p.nc, c.bytes)
			if strings.Contains(c.reason, "closed") {
				p.nc.Close()
			}
			eventually(t, "failure", func() bool { return len(seen.of(HandshakeFailed)) == 1 })
			require.ErrorContains(t, seen.of(HandshakeFailed)[0].Err, c.reason)
			require.EqualValues(t, 1, sub.Stats().HandshakeFailures)
			<-done
			if strings.HasPrefix(c.bytes, good) && name != "refused" {
				require.Contains(t, heard.String(), "\x05ERROR", "the peer is told why")
			}
		})
	}
}

// A peer of a later version is spoken to in ours.
func TestLaterVersion(t *testing.T) {
	for _, v := range [][2]byte{{3, 0}, {3, 1}, {3, 9}, {4, 0}} {
		var g [greetingSize]byte
		copy(g[:], appendGreeting(nil))
		g[10], g[11] = v[0], v[1]
		minor, err := parseGreeting(&g)
		require.NoError(t, err)
		require.Equal(t, v != [2]byte{3, 0}, minor == 1)
	}
}

// Announced sizes cost one chunk until the bytes arrive.
func TestAnnouncedSizeIsNotAllocated(t *testing.T) {
	var before, after runtime.MemStats
	p := newPacket(0)
	l := limits{frame: 64 << 20, message: 128 << 20, parts: 10}
	runtime.ReadMemStats(&before)
	err := l.readMessageFrame(bufio.NewReader(strings.NewReader("ten bytes.")), p, 64<<20)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(200<<10))
}

// Those who never finish a handshake do not keep out those who do.
func TestPendingHandshakesAreDisplaced(t *testing.T) {
	var seen events
	sub := open(t, NewSub, Options{MaxPeers: 2, Monitor: &seen})
	require.NoError(t, sub.Subscribe(""))
	for range 50 {
		connect(sub.socket).discard()
	}
	eventually(t, "displacement", func() bool { return len(seen.of(Rejected)) == 48 })
	good := connect(sub.socket)
	require.NoError(t, good.handshake("PUB", "", 1))
	good.discard()
	require.NoError(t, good.send("here"))
	var m Message
	require.NoError(t, sub.Recv(testContext(t), &m))
	require.Equal(t, ErrTooManyPeers, seen.of(Rejected)[0].Err)
}

// A connection counts until what it left has been received, so that reconnecting
// does not fill the memory.
func TestMaxPeers(t *testing.T) {
	var seen events
	sub := open(t, NewSub, Options{MaxPeers: 1, Monitor: &seen})
	require.NoError(t, sub.Subscribe(""))
	first := connect(sub.socket)
	require.NoError(t, first.handshake("PUB", "", 1))
	first.discard()
	require.NoError(t, first.send("left"))
	eventually(t, "arrival", func() bool { return sub.Stats().Waiting == 1 })
	first.nc.Close()
	eventually(t, "end", func() bool { return sub.Stats().Peers == 0 })

	second := connect(sub.socket)
	require.NoError(t, second.handshake("PUB", "", 1))
	name, data, err := second.readCommand()
	require.NoError(t, err)
	require.Equal(t, cmdError, name)
	require.Contains(t, string(data), "too many peers")
	eventually(t, "rejection", func() bool { return sub.Stats().Rejected == 1 })
	require.Len(t, seen.of(Rejected), 1)

	var m Message
	require.NoError(t, sub.Recv(testContext(t), &m))
	third := connect(sub.socket)
	require.NoError(t, third.handshake("PUB", "", 1))
	third.discard()
	require.NoError(t, third.send("welcome"))
	require.NoError(t, sub.Recv(testContext(t), &m))
	require.Equal(t, "welcome", string(m.Frames[0]))
}

// A hostile subscriber.
func TestTooManySubscriptions(t *testing.T) {
	for name, topic := range map[string]func(i int) []byte{
		"many": func(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) },
		"long": func(i int) []byte { return binary.BigEndian.AppendUint32(make([]byte, maxTopic-4), uint32(i)) },
	} {
		t.Run(name, func(t *testing.T) {
			var seen events
			pub := open(t, NewPub, Options{Monitor: &seen})
			p := connect(pub.socket)
			require.NoError(t, p.handshake("SUB", "", 1))
			p.discard()
			for i := 0; ; i++ {
				require.LessOrEqual(t, i, maxPeerTopics+1)
				if _, err := p.nc.Write(appendCommand(nil, cmdSubscribe, topic(i))); err != nil {
					break
				}
			}
			eventually(t, "disconnection", func() bool { return len(seen.of(Disconnected)) == 1 })
			require.Equal(t, ErrTooManySubscriptions, seen.of(Disconnected)[0].Err)
		})
	}
	for name, b := range map[string][]byte{
		"message": encodeMessage([][]byte{make([]byte, maxTopic+2)}).buf,
		"command": appendCommand(nil, cmdSubscribe, make([]byte, maxTopic+1)),
	} {
		t.Run("too long "+name, func(t *testing.T) {
			var seen events
			pub := open(t, NewPub, Options{Monitor: &seen})
			p := connect(pub.socket)
			require.NoError(t, p.handshake("SUB", "", 1))
			p.discard()
			p.nc.Write(b)
			eventually(t, "disconnection", func() bool { return len(seen.of(Disconnected)) == 1 })
			var limit *LimitError
			require.ErrorAs(t, seen.of(Disconnected)[0].Err, &limit)
		})
	}
}

// All connections together have a bound; who uses much is cut off before who
// uses little.
func TestMaxBuffered(t *testing.T) {
	var seen events
	sub := open(t, NewSub, Options{MaxBuffered: 1 << 20, Monitor: &seen})
	require.NoError(t, sub.Subscribe("kv"))
	held := func() int64 {
		sub.mu.Lock()
		defer sub.mu.Unlock()
		return sub.buffered
	}
	join := func() *peer {
		p := connect(sub.socket)
		require.NoError(t, p.handshake("PUB", "", 1))
		p.discard()
		return p
	}
	greedy, modest := join(), join()
	for range 20 {
		require.NoError(t, greedy.send("kv", string(make([]byte, 100_000))))
	}
	eventually(t, "arrival", func() bool { return sub.Stats().Received == 20 })
	require.Less(t, sub.Stats().Waiting, 10)
	require.LessOrEqual(t, held(), int64(1<<20))
	for range 3 {
		require.NoError(t, modest.send("kv", string(make([]byte, 100_000))))
	}
	eventually(t, "arrival", func() bool { return sub.Stats().Received == 23 })
	var m Message
	fromModest := 0
	for sub.Stats().Waiting > 0 {
		if err := sub.Recv(testContext(t), &m); err == nil && m.Peer == 2 {
			fromModest++
		}
	}
	require.Equal(t, 3, fromModest)
	require.Zero(t, held())

	// A large message nobody subscribed to leaves nothing behind.
	require.NoError(t, modest.send("other", string(make([]byte, 400_000))))
	eventually(t, "filtering", func() bool { return sub.Stats().Filtered == 1 })
	eventually(t, "release", func() bool { return held() == 0 })

	// One incomplete message that is too much.
	go func() {
		greedy.nc.Write(binaryHeader(60 << 20))
		io.CopyN(greedy.nc, zeros{}, 60<<20)
	}()
	eventually(t, "disconnection", func() bool { return len(seen.of(Disconnected)) == 1 })
	var limit *LimitError
	require.ErrorAs(t, seen.of(Disconnected)[0].Err, &limit)
	require.Equal(t, "buffered bytes", limit.What)
	eventually(t, "release", func() bool { return held() == 0 })
	require.NoError(t, modest.send("kv", "still here"))
	for {
		if err := sub.Recv(testContext(t), &m); err == nil {
			require.Equal(t, "still here", string(m.Frames[1]))
			break
		}
	}
}

func binaryHeader(size int) []byte { return appendHeader(nil, 0, size) }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

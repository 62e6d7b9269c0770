package zmtp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain fails when a goroutine of the package outlives the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := lingering(); code == 0 && left != "" {
		fmt.Fprintln(os.Stderr, "goroutines left behind:\n"+left)
		code = 1
	}
	os.Exit(code)
}

// lingering returns the stacks of goroutines that a socket started and that did
// not end within a second.
func lingering() string {
	var left []string
	for range 100 {
		left = left[:0]
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		for stack := range strings.SplitSeq(string(buf), "\n\n") {
			if strings.Contains(stack, "zmtp.(*socket)") || strings.Contains(stack, "zmtp.(*conn)") || strings.Contains(stack, "zmtp.(*writer)") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			return ""
		}
		time.Sleep(10 * time.Millisecond)
	}
	return strings.Join(left, "\n\n")
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}

func open[S io.Closer](t testing.TB, make func(Options) (S, error), o Options) S {
	t.Helper()
	s, err := make(o)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// events records what a Monitor is told.
type events struct {
	mu   sync.Mutex
	list []Event
}

func (e *events) ConnEvent(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, ev)
}

func (e *events) of(kind EventKind) (out []Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.list {
		if ev.Kind == kind {
			out = append(out, ev)
		}
	}
	return out
}

// pipeNet is a network of one address on which a socket may listen, made of
// net.Pipe so that it works in the bubble of testing/synctest.
type pipeNet struct {
	mu     sync.Mutex
	listen func(net.Conn)
	dials  int
}

var errRefused = errors.New("connection refused")

func (n *pipeNet) dial(context.Context, string, string) (net.Conn, error) {
	n.mu.Lock()
	listen := n.listen
	n.dials++
	n.mu.Unlock()
	if listen == nil {
		return nil, errRefused
	}
	a, b := net.Pipe()
	listen(b)
	return a, nil
}

func (n *pipeNet) serve(listen func(net.Conn)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listen = listen
}

func (n *pipeNet) bind(s *socket) {
	n.serve(func(nc net.Conn) { s.acceptConn(nc, "pipe") })
}

const pipeEndpoint = "tcp://pipe:1"

// peer is the other end of a connection, spoken to in bytes.
type peer struct {
	nc net.Conn
	br *bufio.Reader
}

// connect makes a raw connection to a socket, without a word said.
func connect(s *socket) *peer {
	a, b := net.Pipe()
	s.acceptConn(b, "pipe")
	return newPeer(a)
}

func newPeer(nc net.Conn) *peer { return &peer{nc: nc, br: bufio.NewReader(nc)} }

// handshake speaks first, then listens, as the given socket type and version.
func (p *peer) handshake(socketType, identity string, minor byte) error {
	g := appendGreeting(nil)
	g[11] = minor
	if _, err := p.nc.Write(appendReady(g, ready{socketType: socketType, identity: identity})); err != nil {
		return err
	}
	if _, err := io.ReadFull(p.br, make([]byte, greetingSize)); err != nil {
		return err
	}
	name, _, err := p.readCommand()
	if err == nil && name != cmdReady {
		err = fmt.Errorf("got %s", name)
	}
	return err
}

func (p *peer) readCommand() (string, []byte, error) {
	_, size, err := readHeader(p.br)
	if err != nil {
		return "", nil, err
	}
	body, err := readCommand(p.br, nil, size)
	if err != nil {
		return "", nil, err
	}
	name, data, err := parseCommand(body)
	return string(name), data, err
}

func (p *peer) send(frames ...string) error {
	b := make([][]byte, len(frames))
	for i, f := range frames {
		b[i] = []byte(f)
	}
	_, err := p.nc.Write(encodeMessage(b).buf)
	return err
}

// discard reads and forgets whatever comes.
func (p *peer) discard() { go io.Copy(io.Discard, p.br) }

func texts(m *Message) (out []string) {
	for _, f := range m.Frames {
		out = append(out, string(f))
	}
	return out
}

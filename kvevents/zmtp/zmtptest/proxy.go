package zmtptest

import (
	"net"
	"strings"
	"sync"
)

// proxy forwards connections to a publisher, and can stop to.
type proxy struct {
	l        net.Listener
	target   string
	endpoint string

	mu     sync.Mutex
	gate   *gate // of connections that are opened now
	gates  []*gate
	conns  []net.Conn
	closed bool
}

// gate holds what goes through a connection while it is shut.
type gate struct {
	mu   sync.Mutex
	cond *sync.Cond
	shut bool
}

func newGate() *gate {
	g := new(gate)
	g.cond = sync.NewCond(&g.mu)
	return g
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	g.shut = shut
	g.mu.Unlock()
	g.cond.Broadcast()
}

func (g *gate) pass() {
	g.mu.Lock()
	for g.shut {
		g.cond.Wait()
	}
	g.mu.Unlock()
}

func newProxy(b *bench, target string) *proxy {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	b.must(err)
	p := &proxy{l: l, target: strings.TrimPrefix(target, "tcp://"), endpoint: "tcp://" + l.Addr().String(), gate: newGate()}
	p.gates = append(p.gates, p.gate)
	go p.accept()
	b.Cleanup(p.close)
	return p
}

func (p *proxy) accept() {
	for {
		down, err := p.l.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", p.target)
		if err != nil {
			down.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, up, down)
		g := p.gate
		closed := p.closed
		p.mu.Unlock()
		if closed {
			up.Close()
			down.Close()
			return
		}
		go forward(g, up, down)
		go forward(g, down, up)
	}
}

func forward(g *gate, to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 16<<10)
	for {
		g.pass()
		n, err := from.Read(buf)
		g.pass()
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// stall stops the connections there are; resume lets them go on.
func (p *proxy) stall()  { p.current().set(true) }
func (p *proxy) resume() { p.current().set(false) }

func (p *proxy) current() *gate {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gate
}

// strand stops the connections there are for ever, without closing them: they
// are half open for both ends. New ones are forwarded.
func (p *proxy) strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate.set(true)
	p.gate = newGate()
	p.gates = append(p.gates, p.gate)
}

func (p *proxy) close() {
	p.l.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.conns {
		c.Close()
	}
	for _, g := range p.gates {
		g.set(false)
	}
}

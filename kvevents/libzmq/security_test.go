//go:build cgo && !windows

package libzmq

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
	"github.com/pebbe/zmq4"
)

// events records what a Monitor is told.
type events struct {
	mu   sync.Mutex
	list []zmtp.Event
}

func (e *events) ConnEvent(ev zmtp.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, ev)
}

func (e *events) count(kind zmtp.EventKind) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.list {
		if ev.Kind == kind {
			n++
		}
	}
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func keys(t *testing.T) (public, secret string) {
	t.Helper()
	public, secret, err := zmq4.NewCurveKeypair()
	must(t, err)
	return public, secret
}

var authOnce sync.Once

// startAuth starts the ZAP handler, which is one for the process.
func startAuth(t *testing.T) {
	t.Helper()
	authOnce.Do(func() { must(t, zmq4.AuthStart()) })
}

// receives says whether a subscriber gets what a publisher sends, within a while.
func receives(t *testing.T, p *peer, s zmtp.SubSocket, d time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var m zmtp.Message
	for ctx.Err() == nil {
		must(t, p.Send([]byte("kv"), []byte("secret")))
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		err := s.Recv(short, &m)
		cancel()
		if err == nil {
			return len(m.Frames) == 2 && string(m.Frames[1]) == "secret"
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	return false
}

const longEnough, aWhile = 20 * time.Second, 700 * time.Millisecond

func TestCurve(t *testing.T) {
	if !zmq4.HasCurve() {
		t.Fatal("libzmq was built without CURVE")
	}
	startAuth(t)
	serverPublic, serverSecret := keys(t)
	friendPublic, friendSecret := keys(t)
	strangerPublic, strangerSecret := keys(t)
	zmq4.AuthCurveAdd("curve", friendPublic)

	p, err := newPeer(zmq4.PUB, 1000, func(z *zmq4.Socket) error { return z.ServerAuthCurve("curve", serverSecret) })
	must(t, err)
	defer p.Close()
	bound, err := p.Bind("tcp://127.0.0.1:*")
	must(t, err)

	dial := func(tr zmtp.Transport, seen *events) zmtp.SubSocket {
		s, err := tr.NewSub(zmtp.Options{Monitor: seen})
		must(t, err)
		t.Cleanup(func() { s.Close() })
		must(t, s.Subscribe("kv"))
		must(t, s.Dial(bound))
		return s
	}
	friend := Transport{Curve: &Curve{PublicKey: friendPublic, SecretKey: friendSecret, ServerKey: serverPublic}}
	var seen events
	if !receives(t, p, dial(friend, &seen), longEnough) {
		t.Error("a known key receives nothing")
	}
	if seen.count(zmtp.Connected) != 1 {
		t.Errorf("events of a known key: %v", seen.list)
	}
	for name, tr := range map[string]zmtp.Transport{
		"unknown key":      Transport{Curve: &Curve{PublicKey: strangerPublic, SecretKey: strangerSecret, ServerKey: serverPublic}},
		"wrong server key": Transport{Curve: &Curve{PublicKey: friendPublic, SecretKey: friendSecret, ServerKey: strangerPublic}},
		"NULL":             Transport{},
		"PLAIN":            Transport{Plain: &Plain{Username: "a", Password: "b"}},
		"pure Go":          zmtp.Native,
	} {
		var seen events
		s := dial(tr, &seen)
		if receives(t, p, s, aWhile) {
			t.Errorf("%s: received", name)
		}
		if st := s.Stats(); st.Connects != 0 || st.Peers != 0 || st.HandshakeFailures == 0 || seen.count(zmtp.HandshakeFailed) == 0 {
			t.Errorf("%s: the refusal is not told: %+v", name, st)
		}
	}
}

// A SUB that binds is the server; a publisher dials it with its own key.
func TestCurveServer(t *testing.T) {
	startAuth(t)
	serverPublic, serverSecret := keys(t)
	friendPublic, friendSecret := keys(t)
	strangerPublic, strangerSecret := keys(t)
	zmq4.AuthCurveAdd("bound", friendPublic)

	s, err := Transport{
		Curve:     &Curve{PublicKey: serverPublic, SecretKey: serverSecret, Server: true},
		Configure: func(z *zmq4.Socket) error { return z.SetZapDomain("bound") },
	}.NewSub(zmtp.Options{})
	must(t, err)
	defer s.Close()
	must(t, s.Subscribe("kv"))
	bound, err := s.Bind("tcp://127.0.0.1:*")
	must(t, err)
	for _, c := range []struct {
		public, secret string
		want           bool
		d              time.Duration
	}{
		{strangerPublic, strangerSecret, false, aWhile},
		{friendPublic, friendSecret, true, longEnough},
	} {
		p, err := newPeer(zmq4.PUB, 1000, func(z *zmq4.Socket) error { return z.ClientAuthCurve(serverPublic, c.public, c.secret) })
		must(t, err)
		must(t, p.Dial(bound))
		if receives(t, p, s, c.d) != c.want {
			t.Errorf("received=%v", !c.want)
		}
		must(t, p.Close())
	}
}

// The replay channel is encrypted in the same way.
func TestCurveDealer(t *testing.T) {
	startAuth(t)
	serverPublic, serverSecret := keys(t)
	public, secret := keys(t)
	zmq4.AuthCurveAdd("replay", public)
	r, err := newPeer(zmq4.ROUTER, 1000, func(z *zmq4.Socket) error { return z.ServerAuthCurve("replay", serverSecret) })
	must(t, err)
	defer r.Close()
	bound, err := r.Bind("tcp://127.0.0.1:*")
	must(t, err)
	d, err := Transport{Curve: &Curve{PublicKey: public, SecretKey: secret, ServerKey: serverPublic}}.NewDealer(zmtp.Options{})
	must(t, err)
	defer d.Close()
	must(t, d.Dial(bound))
	ctx, cancel := context.WithTimeout(t.Context(), longEnough)
	defer cancel()
	must(t, d.Send(ctx, nil, []byte("12345678")))
	var m zmtp.Message
	must(t, r.Recv(ctx, &m))
	must(t, r.Send(m.Frames[0], nil, []byte("answer")))
	must(t, d.Recv(ctx, &m))
	if len(m.Frames) != 2 || string(m.Frames[1]) != "answer" {
		t.Errorf("received %q", m.Frames)
	}
}

func TestPlain(t *testing.T) {
	startAuth(t)
	zmq4.AuthPlainAdd("plain", "router", "right")
	p, err := newPeer(zmq4.PUB, 1000, func(z *zmq4.Socket) error { return z.ServerAuthPlain("plain") })
	must(t, err)
	defer p.Close()
	bound, err := p.Bind("tcp://127.0.0.1:*")
	must(t, err)
	for _, c := range []struct {
		tr   zmtp.Transport
		want bool
		d    time.Duration
	}{
		{Transport{Plain: &Plain{Username: "router", Password: "right"}}, true, longEnough},
		{Transport{Plain: &Plain{Username: "router", Password: "wrong"}}, false, aWhile},
		{Transport{Plain: &Plain{Username: "nobody", Password: "right"}}, false, aWhile},
		{Transport{}, false, aWhile},
		{zmtp.Native, false, aWhile},
	} {
		s, err := c.tr.NewSub(zmtp.Options{})
		must(t, err)
		must(t, s.Subscribe("kv"))
		must(t, s.Dial(bound))
		if receives(t, p, s, c.d) != c.want {
			t.Errorf("%+v: received=%v", c.tr, !c.want)
		}
		if st := s.Stats(); c.want != (st.Connects > 0) || c.want != (st.HandshakeFailures == 0) {
			t.Errorf("%+v: %+v", c.tr, st)
		}
		must(t, s.Close())
	}
}

// What cannot be made is refused with a reason.
func TestRefused(t *testing.T) {
	public, secret := keys(t)
	for name, tr := range map[string]Transport{
		"both":       {Curve: &Curve{PublicKey: public, SecretKey: secret, ServerKey: public}, Plain: &Plain{}},
		"server key": {Curve: &Curve{PublicKey: public, SecretKey: secret}},
		"public key": {Curve: &Curve{PublicKey: "short", SecretKey: secret, ServerKey: public}},
		"secret key": {Curve: &Curve{PublicKey: public, SecretKey: "short", ServerKey: public}},
		"server":     {Curve: &Curve{Server: true, SecretKey: "short"}},
		"configure":  {Configure: func(*zmq4.Socket) error { return errors.New("no") }},
	} {
		s, err := tr.NewSub(zmtp.Options{})
		if err == nil || s != nil {
			t.Errorf("%s: accepted", name)
		}
		if d, err := tr.NewDealer(zmtp.Options{}); err == nil || d != nil {
			t.Errorf("%s: accepted", name)
		}
	}
	var option *zmtp.OptionError
	if _, err := (Transport{}).NewSub(zmtp.Options{MaxParts: -1}); !errors.As(err, &option) {
		t.Errorf("bad option: %v", err)
	}
	if _, err := (Transport{}).NewSub(zmtp.Options{DialContext: zmtpDial}); !errors.As(err, &option) || option.Option != "DialContext" {
		t.Errorf("DialContext: %v", err)
	}
}

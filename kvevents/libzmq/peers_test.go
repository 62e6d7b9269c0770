//go:build cgo && !windows

package libzmq

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
	"github.com/kvatlas/kvatlas/kvevents/zmtp/zmtptest"
	"github.com/pebbe/zmq4"
)

// peers are the other end on libzmq, by pebbe/zmq4 itself: nothing of this
// package, so that both transports are tried against the same thing.
var peers = zmtptest.Peers{
	NewPublisher: func(highWater int) (zmtptest.Publisher, error) { return newPeer(zmq4.PUB, highWater, nil) },
	NewRouter:    func(highWater int) (zmtptest.Router, error) { return newPeer(zmq4.ROUTER, highWater, nil) },
}

// peer serializes the use of a socket.
type peer struct {
	mu     sync.Mutex
	z      *zmq4.Socket
	closed bool
}

func newPeer(kind zmq4.Type, highWater int, configure func(*zmq4.Socket) error) (*peer, error) {
	z, err := zmq4.NewSocket(kind)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(z.SetSndhwm(highWater), z.SetLinger(0)); err != nil {
		return nil, err
	}
	if configure != nil {
		if err := configure(z); err != nil {
			return nil, err
		}
	}
	return &peer{z: z}, nil
}

func (p *peer) Bind(endpoint string) (bound string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.z.SetIpv6(strings.Contains(endpoint, "[")); err != nil {
		return "", err
	}
	if err := p.z.Bind(endpoint); err != nil {
		return "", err
	}
	return p.z.GetLastEndpoint()
}

func (p *peer) Dial(endpoint string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.z.SetIpv6(strings.Contains(endpoint, "[")), p.z.Connect(endpoint))
}

func (p *peer) Send(frames ...[]byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return zmtp.ErrClosed
	}
	parts := make([]any, len(frames))
	for i, f := range frames {
		parts[i] = f
	}
	_, err := p.z.SendMessageDontwait(parts...)
	return err
}

func (p *peer) Recv(ctx context.Context, m *zmtp.Message) error {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return zmtp.ErrClosed
		}
		frames, err := p.z.RecvMessageBytes(zmq4.DONTWAIT)
		p.mu.Unlock()
		if err == nil {
			*m = zmtp.Message{Frames: frames}
			return nil
		}
		if !errors.Is(err, zmq4.Errno(syscall.EAGAIN)) {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close returns when the address is free, which libzmq does in its own time.
func (p *peer) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	if bound, err := p.z.GetLastEndpoint(); err == nil && bound != "" {
		p.z.Unbind(bound)
	}
	return p.z.Close()
}

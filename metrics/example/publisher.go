package main

import (
	"context"
	"encoding/binary"
	"math"
	"sync"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

// publisher plays an engine's event publisher: live messages, and a buffer that is
// replayed on request.
type publisher struct {
	endpoint, replay string // empty replay: none
	pub              *zmtp.Pub
	router           *zmtp.Router
	serving          sync.WaitGroup

	mu     sync.Mutex
	buffer []message
}

type message struct {
	seq     uint64
	payload []byte
}

// open starts the engine, again if it was closed: on the same ports, with nothing
// in its buffer.
func (p *publisher) open(withReplay bool) (err error) {
	if p.endpoint == "" {
		p.endpoint, p.replay = "tcp://127.0.0.1:0", "tcp://127.0.0.1:0"
	}
	if p.pub, err = zmtp.NewPub(zmtp.Options{}); err != nil {
		return err
	}
	if p.endpoint, err = p.pub.Bind(p.endpoint); err != nil || !withReplay {
		p.replay = ""
		return err
	}
	if p.router, err = zmtp.NewRouter(zmtp.Options{}); err != nil {
		return err
	}
	if p.replay, err = p.router.Bind(p.replay); err != nil {
		return err
	}
	p.buffer = nil
	p.serving.Go(p.serve)
	return nil
}

func (p *publisher) close() {
	if p.pub != nil {
		p.pub.Close()
	}
	if p.router != nil {
		p.router.Close()
	}
	p.serving.Wait()
	p.pub, p.router = nil, nil
}

// publish sends a recorded message as if it were new: only its timestamp is
// changed. One that is dropped can be had by replay alone.
func (p *publisher) publish(topic string, m message, drop bool) {
	m.payload = renewed(m.payload)
	p.mu.Lock()
	p.buffer = append(p.buffer, m)
	p.mu.Unlock()
	if !drop {
		_ = p.pub.Send([]byte(topic), seq(m.seq), m.payload)
	}
}

func seq(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// renewed returns a payload with the present time. It is an array whose first
// element is the time as a float64.
func renewed(payload []byte) []byte {
	if len(payload) < 10 || payload[1] != 0xcb {
		return payload
	}
	out := append([]byte(nil), payload...)
	binary.BigEndian.PutUint64(out[2:], math.Float64bits(float64(time.Now().UnixNano())/1e9))
	return out
}

// serve answers requests for replays until the router is closed.
func (p *publisher) serve() {
	var m zmtp.Message
	for p.router.Recv(context.Background(), &m) == nil {
		if len(m.Frames) != 3 || len(m.Frames[2]) != 8 {
			continue
		}
		peer, from := m.Frames[0], binary.BigEndian.Uint64(m.Frames[2])
		p.mu.Lock()
		buffer := p.buffer
		p.mu.Unlock()
		for _, b := range buffer {
			if b.seq >= from {
				_ = p.router.Send(peer, nil, seq(b.seq), b.payload)
			}
		}
		_ = p.router.Send(peer, nil, seq(math.MaxUint64), nil)
	}
}

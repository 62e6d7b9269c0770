package zmtptest

import (
	"encoding/binary"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

// replayForms: what an engine answers to a DEALER comes frame by frame as sent,
// in the layout with three frames and in that with four.
func replayForms(b *bench) {
	r := b.router(manyMessages)
	d := b.dealer(zmtp.Options{})
	b.must(d.Dial(b.bind(r)))
	for _, reply := range [][][]byte{
		{nil, number(0), []byte("payload")},
		{nil, endMarker, nil},
		{nil, []byte("topic"), number(0), []byte("payload")},
		{nil, nil, endMarker, nil},
	} {
		b.must(d.Send(b.ctx, nil, number(0)))
		var ask, got zmtp.Message
		b.recv(r, &ask)
		if len(ask.Frames) != 3 || len(ask.Frames[1]) != 0 || string(ask.Frames[2]) != string(number(0)) {
			b.Fatalf("the router received %q", ask.Frames)
		}
		b.must(r.Send(append([][]byte{ask.Frames[0]}, reply...)...))
		b.recv(d, &got)
		if len(got.Frames) != len(reply) {
			b.Fatalf("sent %q, received %q", reply, got.Frames)
		}
		for i := range reply {
			if string(got.Frames[i]) != string(reply[i]) {
				b.Fatalf("sent %q, received %q", reply, got.Frames)
			}
		}
	}
}

// longReplay: the whole buffer of an engine, 10,000 batches.
func longReplay(b *bench) {
	const n = 10_000
	e := newEngine(b, manyMessages)
	payload := make([]byte, 500)
	for range n {
		e.publish(payload)
	}
	got := map[uint64]bool{}
	e.replayInto(b, 0, got)
	if len(got) != n {
		b.Fatalf("%d of %d batches", len(got), n)
	}
	got = map[uint64]bool{}
	e.replayInto(b, n, got)
	if len(got) != 0 {
		b.Fatalf("%d batches beyond the end", len(got))
	}
}

// routerRestart: a request that was not answered can be made again to the router
// that took the place of the first.
func routerRestart(b *bench) {
	r := b.router(manyMessages)
	bound := b.bind(r)
	d := b.dealer(zmtp.Options{})
	b.must(d.Dial(bound))
	var m zmtp.Message
	b.must(d.Send(b.ctx, nil, number(1)))
	b.recv(r, &m)
	b.must(r.Close())
	time.Sleep(100 * time.Millisecond)
	r = b.router(manyMessages)
	b.must(retry(b, func() error { _, err := r.Bind(bound); return err }))
	for s := d.Stats(); s.Connects < 2 && b.ctx.Err() == nil; s = d.Stats() {
		time.Sleep(time.Millisecond)
	}
	b.must(d.Send(b.ctx, nil, number(2)))
	b.recv(r, &m)
	if got := binary.BigEndian.Uint64(m.Frames[2]); got != 2 {
		b.Fatalf("the router received %d", got)
	}
	b.must(r.Send(m.Frames[0], nil, number(2), nil))
	b.recv(d, &m)
	if got := seqOf(b, &m); got != 2 {
		b.Fatalf("received %d", got)
	}
}

// identity: the name of a DEALER reaches the router.
func identity(b *bench) {
	r := b.router(manyMessages)
	bound := b.bind(r)
	var m zmtp.Message
	for _, name := range []string{"kvatlas-1", ""} {
		d := b.dealer(zmtp.Options{Identity: name})
		b.must(d.Dial(bound))
		b.must(d.Send(b.ctx, []byte("x")))
		b.recv(r, &m)
		if name != "" && string(m.Frames[0]) != name || len(m.Frames[0]) == 0 {
			b.Fatalf("%q is known as %q", name, m.Frames[0])
		}
	}
}

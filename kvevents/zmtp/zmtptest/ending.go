package zmtptest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

// contextEndsRecv: a context that ends makes Recv and Send return its error, and
// does not harm the socket.
func contextEndsRecv(b *bench) {
	p, s, _ := b.dialed(zmtp.Options{}, manyMessages, "kv")
	d := b.dealer(zmtp.Options{})
	var m zmtp.Message
	for range 20 {
		ctx, cancel := context.WithTimeout(b.ctx, 5*time.Millisecond)
		if err := s.Recv(ctx, &m); !errors.Is(err, context.DeadlineExceeded) || len(m.Frames) != 0 {
			b.Fatalf("got %v with %d frames", err, len(m.Frames))
		}
		if err := d.Recv(ctx, &m); !errors.Is(err, context.DeadlineExceeded) {
			b.Fatal(err)
		}
		cancel()
		if err := s.Recv(ctx, &m); err == nil {
			b.Fatal("received with a context that had ended")
		}
		if err := d.Send(ctx, []byte("x")); err == nil {
			b.Fatal("sent with a context that had ended")
		}
	}
	for seq := range uint64(10) {
		b.must(p.Send([]byte("kv"), number(seq), nil))
	}
	for seq := range uint64(10) {
		b.recv(s, &m)
		if got := seqOf(b, &m); got != seq {
			b.Fatalf("received %d, want %d", got, seq)
		}
	}
}

// closeEndsRecv: Close, from any goroutine and more than once, ends a Recv that
// waits, and every later call.
func closeEndsRecv(b *bench) {
	s := b.sub(zmtp.Options{}, "")
	d := b.dealer(zmtp.Options{})
	b.must(s.Dial("tcp://127.0.0.1:1"))
	var waiting sync.WaitGroup
	waiting.Go(func() {
		var m zmtp.Message
		if err := s.Recv(b.ctx, &m); !errors.Is(err, zmtp.ErrClosed) {
			b.Errorf("Recv of SUB: %v", err)
		}
	})
	waiting.Go(func() {
		var m zmtp.Message
		if err := d.Recv(b.ctx, &m); !errors.Is(err, zmtp.ErrClosed) {
			b.Errorf("Recv of DEALER: %v", err)
		}
	})
	time.Sleep(20 * time.Millisecond)
	for range 3 {
		waiting.Go(func() {
			if err := errors.Join(s.Close(), d.Close()); err != nil {
				b.Error(err)
			}
		})
	}
	waiting.Wait()
	var m zmtp.Message
	_, bindErr := s.Bind("tcp://127.0.0.1:0")
	for what, err := range map[string]error{
		"Recv":      s.Recv(b.ctx, &m),
		"Subscribe": s.Subscribe("x"),
		"Dial":      s.Dial("tcp://127.0.0.1:1"),
		"Bind":      bindErr,
		"Send":      d.Send(b.ctx, []byte("x")),
		"Dial of D": d.Dial("tcp://127.0.0.1:1"),
	} {
		if !errors.Is(err, zmtp.ErrClosed) {
			b.Errorf("%s after Close: %v", what, err)
		}
	}
}

// anyGoroutine: every method from many goroutines while messages come (T144).
func anyGoroutine(b *bench) {
	p, s, _ := b.dialed(zmtp.Options{}, manyMessages, "kv")
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				b.must(p.Send([]byte("kv"), number(0), make([]byte, 100)))
				time.Sleep(50 * time.Microsecond)
			}
		}
	})
	all.Go(func() {
		var m zmtp.Message
		for {
			err := s.Recv(b.ctx, &m)
			if errors.Is(err, zmtp.ErrClosed) {
				return
			}
			if _, ok := errors.AsType[*zmtp.LossError](err); err != nil && !ok {
				b.Error(err)
				return
			}
		}
	})
	for i := range 4 {
		all.Go(func() {
			for n := 0; s.Subscribe(fmt.Sprint(i, n)) == nil; n++ {
				s.Stats()
				time.Sleep(100 * time.Microsecond)
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	for range 3 {
		all.Go(func() { s.Close() })
	}
	time.Sleep(10 * time.Millisecond)
	close(done)
	all.Wait()
}

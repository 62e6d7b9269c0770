//go:build cgo && !windows

package libzmq

import (
	"context"
	"testing"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

// BenchmarkReceive compares the two transports: messages of three frames, the
// last of 4 KiB, over loopback TCP from a publisher of package zmtp, with up to
// 1000 on the way.
func BenchmarkReceive(b *testing.B) {
	for name, tr := range map[string]zmtp.Transport{"native": zmtp.Native, "libzmq": Transport{}} {
		b.Run(name, func(b *testing.B) { benchmarkReceive(b, tr) })
	}
}

func benchmarkReceive(b *testing.B, tr zmtp.Transport) {
	pub, err := zmtp.NewPub(zmtp.Options{SendMessages: 2000})
	if err != nil {
		b.Fatal(err)
	}
	defer pub.Close()
	bound, err := pub.Bind("tcp://127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	sub, err := tr.NewSub(zmtp.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer sub.Close()
	if err := sub.Subscribe(""); err != nil {
		b.Fatal(err)
	}
	if err := sub.Dial(bound); err != nil {
		b.Fatal(err)
	}
	for pub.Subscriptions() == 0 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	credit := make(chan struct{}, 1000)
	frames := [][]byte{nil, make([]byte, 8), make([]byte, 4<<10)}
	go func() {
		for ctx.Err() == nil {
			select {
			case credit <- struct{}{}:
				pub.Send(frames...)
			case <-ctx.Done():
			}
		}
	}()
	b.SetBytes(4<<10 + 8)
	b.ReportAllocs()
	var m zmtp.Message
	for b.Loop() {
		if err := sub.Recv(ctx, &m); err != nil {
			b.Fatal(err)
		}
		<-credit
	}
}

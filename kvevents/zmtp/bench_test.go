package zmtp

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
)

// BenchmarkReceive measures a Pub and a Sub over a loopback TCP connection, with
// up to 1000 messages on the way: one message of three frames, as an engine
// sends, per operation.
func BenchmarkReceive(b *testing.B) {
	for _, network := range []string{"tcp://127.0.0.1:0", "ipc"} {
		for _, size := range []int{100, 4 << 10, 64 << 10} {
			ep := network
			if ep == "ipc" {
				ep = "ipc://" + b.TempDir() + "/s"
			}
			b.Run(fmt.Sprintf("%.3s/%d", network, size), func(b *testing.B) {
				benchmarkReceive(b, ep, size)
			})
		}
	}
}

func benchmarkReceive(b *testing.B, ep string, size int) {
	pub := open(b, NewPub, Options{SendMessages: 2000})
	bound, err := pub.Bind(ep)
	if err != nil {
		b.Fatal(err)
	}
	sub := open(b, NewSub, Options{})
	sub.Subscribe("")
	sub.Dial(bound)
	eventually(b, "subscription", func() bool { return pub.Subscriptions() == 1 })
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	credit := make(chan struct{}, 1000)
	frames := [][]byte{nil, make([]byte, 8), make([]byte, size)}
	go func() {
		for ctx.Err() == nil {
			select {
			case credit <- struct{}{}:
				pub.Send(frames...)
			case <-ctx.Done():
			}
		}
	}()
	b.SetBytes(int64(size + 8))
	b.ReportAllocs()
	var m Message
	for b.Loop() {
		if err := sub.Recv(ctx, &m); err != nil {
			b.Fatal(err)
		}
		<-credit
	}
}

// BenchmarkLatency measures the way of one message from Send to Recv and of its
// answer back, over loopback TCP.
func BenchmarkLatency(b *testing.B) {
	router := open(b, NewRouter, Options{})
	bound, err := router.Bind("tcp://127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	dealer := open(b, NewDealer, Options{})
	dealer.Dial(bound)
	ctx := context.Background()
	go func() {
		var m Message
		for router.Recv(ctx, &m) == nil {
			router.Send(m.Frames...)
		}
	}()
	frames := [][]byte{nil, make([]byte, 100)}
	b.ReportAllocs()
	var m Message
	for b.Loop() {
		if err := dealer.Send(ctx, frames...); err != nil {
			b.Fatal(err)
		}
		if err := dealer.Recv(ctx, &m); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFanOut measures one Send to 64 subscribers, received by all.
func BenchmarkFanOut(b *testing.B) {
	pub := open(b, NewPub, Options{SendMessages: 1 << 20})
	bound, err := pub.Bind("tcp://127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	const subscribers = 64
	subs := make([]*Sub, subscribers)
	for i := range subs {
		subs[i] = open(b, NewSub, Options{})
		subs[i].Subscribe("")
		subs[i].Dial(bound)
	}
	eventually(b, "subscriptions", func() bool { return pub.Subscriptions() == subscribers })
	frames := [][]byte{nil, make([]byte, 8), make([]byte, 4<<10)}
	b.ReportAllocs()
	var m Message
	for b.Loop() {
		pub.Send(frames...)
		for _, s := range subs {
			if err := s.Recv(context.Background(), &m); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkIdle reports what 200 idle subscribers and their publishers cost, in
// one process: percent of a core, and memory for each pair. An operation is a
// second of idleness; heartbeats take five, so run it with -benchtime 20x.
func BenchmarkIdle(b *testing.B) {
	const pairs = 200
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range pairs {
		pub := open(b, NewPub, Options{})
		bound, err := pub.Bind("tcp://127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		sub := open(b, NewSub, Options{})
		sub.Subscribe("")
		sub.Dial(bound)
		eventually(b, "subscription", func() bool { return pub.Subscriptions() == 1 })
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	start, used := time.Now(), cpuTime()
	if used < 0 {
		b.Skip("this system does not tell the processor time")
	}
	for b.Loop() {
		time.Sleep(time.Second)
	}
	b.ReportMetric(100*(cpuTime()-used).Seconds()/time.Since(start).Seconds(), "%core")
	b.ReportMetric(float64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse)/pairs/1024, "KiB/pair")
}

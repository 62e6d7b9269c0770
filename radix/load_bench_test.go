package radix

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkBulkLoad is a router's start: 2,277,254 blocks of seven workers come
// in events of 64 while another goroutine looks a prompt up each
// 100 us (trial T117).
func BenchmarkBulkLoad(b *testing.B) {
	const blocks, workers, event, prompt = 2_277_254, 7, 64, 512
	keys := randomKeys(117, blocks)
	for b.Loop() {
		before := heapInUse()
		x, ids := benchIndex(b, workers, ProfileOptions{HashUnit: 16})
		var loaded, slowest atomic.Int64
		var lookups int
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			var r Result
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Microsecond):
				}
				at := max(0, loaded.Load()-prompt)
				started := time.Now()
				got, err := x.Prefixes(&Query{Keys: keys[at : at+prompt]}, &r)
				slowest.Store(max(slowest.Load(), int64(time.Since(started))))
				if err != nil || at > 0 && len(got) == 0 {
					b.Errorf("a prompt that was loaded is not found: %v", err)
					return
				}
				lookups++
			}
		}()
		started := time.Now()
		for at := 0; at < blocks; at += event {
			// Prompts of 64 events go to one worker each.
			id := ids[at/event/64%workers]
			if err := x.Store(Holder{Worker: id}, keys[at:min(at+event, blocks)]); err != nil {
				b.Fatal(err)
			}
			loaded.Store(int64(at))
		}
		took := time.Since(started)
		close(stop)
		<-done
		b.ReportMetric(took.Seconds(), "s/load")
		b.ReportMetric(blocks/took.Seconds()/1e6, "Mblocks/s")
		b.ReportMetric((heapInUse()-before)/(1<<20), "MiB")
		b.ReportMetric(float64(lookups)/took.Seconds(), "lookups/s")
		b.ReportMetric(float64(slowest.Load())/1e6, "slowest-ms")
		runtime.KeepAlive(x)
	}
}

func heapInUse() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse)
}

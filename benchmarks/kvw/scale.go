package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kvatlas/kvatlas/radix"
)

// scales are runs of ours alone that need no recorded stream: what the index does
// as it grows, and over a long time. Each prints JSON lines, which plot draws.
var scales = map[string]func(){
	"growth": growth, "workers": fanOut, "soak": soak, "big": big, "clear": clearing,
}

const prompt = 300 // blocks of a generated prompt

// chain writes the keys of generated prompt number n.
func chain(dst []uint64, n uint64) []uint64 {
	for i := range dst {
		z := (n<<20 + uint64(i) + 1) * mix
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		dst[i] = z ^ z>>27
	}
	return dst
}

const mix = 0x9e3779b97f4a7c15

func emit(name string, fields map[string]any) {
	fields["scale"] = name
	b, err := json.Marshal(fields)
	check(err)
	fmt.Printf("%s\n", b)
}

func newIndex(workers int) (*radix.Index, []radix.Holder) {
	x, err := radix.New(radix.Options{})
	check(err)
	p, err := radix.NewProfile(radix.ProfileOptions{HashUnit: 16})
	check(err)
	holders := make([]radix.Holder, workers)
	for i := range holders {
		id, err := x.AddWorker(fmt.Sprint("worker-", i), p)
		check(err)
		holders[i].Worker = id
	}
	return x, holders
}

// ask times look-ups of prompts that next makes, and returns sorted nanoseconds.
func ask(x *radix.Index, n int, next func() []uint64) samples {
	var r radix.Result
	ns := make(samples, 0, n)
	for range n {
		q := radix.Query{Keys: next()}
		t := time.Now()
		_, err := x.Prefixes(&q, &r)
		ns = append(ns, since(t))
		check(err)
	}
	slices.Sort(ns)
	return ns
}

func (s samples) at(p float64) float64 { return float64(s[int(float64(len(s)-1)*p)]) / 1000 }

// growth fills an index of 8 workers with 10^4 to MAX (10^8) different blocks in
// prompts of 300, and asks for random ones of them at each power of ten.
func growth() {
	limit := int(env("MAX", 1e8))
	x, holders := newIndex(8)
	keys, asked := make([]uint64, prompt), make([]uint64, prompt)
	r := rand.New(rand.NewPCG(1, 2))
	stored, from := 0, 0
	t, c := time.Now(), cpuSeconds()
	for target := 10_000; target <= limit; target *= 10 {
		for ; stored < target; stored += prompt {
			n := uint64(stored / prompt)
			check(x.Store(holders[n%8], chain(keys, n)))
		}
		wall, cpu := time.Since(t), cpuSeconds()-c
		ns := ask(x, 20_000, func() []uint64 { return chain(asked, r.Uint64N(uint64(stored/prompt))) })
		s := x.Stats()
		emit("growth", map[string]any{"blocks": s.Blocks, "lost": s.Lost, "bytes_per_block": float64(s.Bytes) / float64(s.Blocks),
			"ingest_ns": float64(wall.Nanoseconds()) / float64(stored-from), "ingest_cpu_ns": cpu * 1e9 / float64(stored-from),
			"p50_us": ns.at(.5), "p99_us": ns.at(.99)})
		from, t, c = stored, time.Now(), cpuSeconds()
	}
}

// fanOut gives 1 to 1,024 workers a million blocks together, in prompts of 640
// shared and 200 own blocks, and asks for random ones of them.
func fanOut() {
	const shared, own = 640, 200
	for workers := 1; workers <= 1024; workers *= 4 {
		x, holders := newIndex(workers)
		keys := make([]uint64, shared+own)
		chain(keys[:shared], 1<<40)
		r := rand.New(rand.NewPCG(1, 2))
		prompts := max(1_000_000/own, workers)
		t, c := time.Now(), cpuSeconds()
		for n := range prompts {
			h := holders[n%workers]
			if chain(keys[shared:], uint64(n)); n < workers {
				check(x.Store(h, keys)) // a shared block once a worker
			} else {
				check(x.StoreAfter(h, keys[shared-1], keys[shared:]))
			}
		}
		wall, cpu := time.Since(t), cpuSeconds()-c
		ns := ask(x, 20_000, func() []uint64 { chain(keys[shared:], r.Uint64N(uint64(prompts))); return keys })
		s := x.Stats()
		blocks := float64(prompts*own + workers*shared)
		emit("workers", map[string]any{"workers": workers, "blocks": s.Blocks, "memberships": s.Memberships,
			"bytes_per_block": float64(s.Bytes) / float64(s.Blocks), "ingest_ns": float64(wall.Nanoseconds()) / blocks, "ingest_cpu_ns": cpu * 1e9 / blocks,
			"p50_us": ns.at(.5), "p99_us": ns.at(.99)})
	}
}

// soak stores and evicts MAX (10^8) blocks at half a million held, once in order
// of age, deepest block first, and once with each block evicted by itself at
// random, and notes the memory after every hundredth.
func soak() {
	limit := int(env("MAX", 1e8))
	for _, order := range []string{"ordered", "random"} {
		const held = 500_000
		x, holders := newIndex(8)
		keys := make([]uint64, prompt)
		r := rand.New(rand.NewPCG(1, 2))
		type block struct {
			key    uint64
			holder uint8
		}
		var all []block // random order
		oldest := uint64(0)
		t, c := time.Now(), cpuSeconds()
		for n, next := uint64(0), limit/100; int(n)*prompt < limit; n++ {
			h := n % 8
			check(x.Store(holders[h], chain(keys, n)))
			if order == "random" {
				for _, k := range keys {
					all = append(all, block{k, uint8(h)})
				}
				for len(all) > held {
					i := r.IntN(len(all))
					check(x.Remove(holders[all[i].holder], []uint64{all[i].key}))
					all[i] = all[len(all)-1]
					all = all[:len(all)-1]
				}
			} else if (n-oldest)*prompt > held {
				chain(keys, oldest)
				slices.Reverse(keys)
				check(x.Remove(holders[oldest%8], keys))
				oldest++
			}
			if done := int(n+1) * prompt; done >= next {
				next += limit / 100
				s := x.Stats()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				emit("soak", map[string]any{"order": order, "stored": done, "blocks": s.Blocks, "bytes": s.Bytes, "rss": rss(), "heap": m.HeapInuse,
					"faults": s.Lost + s.Unmatched, "ns": float64(time.Since(t).Nanoseconds()) / float64(done), "cpu_ns": (cpuSeconds() - c) * 1e9 / float64(done)})
			}
		}
	}
}

// big gives 64 workers a million blocks each, in prompts of one of ten system
// prompts of 640 blocks and 360 blocks of their own, then replaces RATE (a
// million) of them a second for SECONDS (10), and tells what the collector cost.
func big() {
	const workers, each, shared, own = 64, 1_000_000, 640, 360
	debug.FreeOSMemory()
	before := rss()
	x, holders := newIndex(workers)
	keys := make([]uint64, shared+own)
	prompts := uint64(each-10*shared) / own
	fill := func(w int, n uint64) []uint64 {
		chain(keys[:shared], 1<<40+n%10)
		chain(keys[shared:], uint64(w)<<20+n)
		return keys[shared:]
	}
	t := time.Now()
	for n := range prompts {
		for w, h := range holders {
			if tail := fill(w, n); n < 10 {
				check(x.Store(h, keys))
			} else {
				check(x.StoreAfter(h, keys[shared-1], tail))
			}
		}
	}
	filled := time.Since(t)
	debug.FreeOSMemory()
	s := x.Stats()
	emit("big", map[string]any{"memberships": s.Memberships, "blocks": s.Blocks, "lost": s.Lost, "rss_mib": float64(rss()-before) / (1 << 20),
		"bytes_mib": float64(s.Bytes) / (1 << 20), "fill_s": filled.Seconds()})
	t = time.Now()
	runtime.GC()
	forced := time.Since(t)
	gc := func() (cpu float64, cycles uint64) {
		m := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/gc/cycles/total:gc-cycles"}}
		metrics.Read(m)
		return m[0].Value.Float64(), m[1].Value.Uint64()
	}
	seconds, rate := float64(env("SECONDS", 10)), float64(env("RATE", 1_000_000))
	gc0, cycles0 := gc()
	c := cpuSeconds()
	done := 0.0
	for t, n := time.Now(), prompts; time.Since(t).Seconds() < seconds; n++ {
		for w, h := range holders {
			tail := fill(w, n)
			check(x.StoreAfter(h, keys[shared-1], tail))
			tail = fill(w, n-prompts+10)
			slices.Reverse(tail)
			check(x.Remove(h, tail))
			done += own
		}
		time.Sleep(time.Duration((done/rate - time.Since(t).Seconds()) * 1e9))
	}
	used := cpuSeconds() - c
	runtime.GC() // at least one, though nothing asked for it
	gc1, cycles1 := gc()
	emit("big-churn", map[string]any{"replaced_per_s": done / seconds, "cpu_s": used, "gc_cpu_s": gc1 - gc0, "gc_cycles": cycles1 - cycles0,
		"gc_share_of_cpu": (gc1 - gc0) / used, "gc_share_of_a_core": (gc1 - gc0) / seconds, "forced_gc_ms": forced.Seconds() * 1e3, "blocks": x.Stats().Blocks})
}

// clearing asks without a pause while a writer fills a worker with a million
// blocks over and over, which it removes block by block (the control), or
// clears. What the machine's other load does to the reader is in both.
func clearing() {
	const blocks = 1_000_000 / prompt * prompt
	for _, mode := range []string{"idle", "removed", "cleared", "idle", "removed", "cleared"} {
		x, holders := newIndex(8)
		keys := make([]uint64, prompt)
		for n := range uint64(1000) {
			check(x.Store(holders[1+n%7], chain(keys, 1<<30+n)))
		}
		var stop atomic.Bool
		var clears []float64
		finished := make(chan bool)
		go func() {
			defer close(finished)
			for n := uint64(0); !stop.Load(); {
				if mode == "idle" {
					time.Sleep(time.Millisecond)
					continue
				}
				first := n
				for ; n < first+blocks/prompt; n++ {
					check(x.Store(holders[0], chain(keys, n)))
				}
				t := time.Now()
				if mode == "cleared" {
					check(x.Clear(holders[0].Worker))
					clears = append(clears, float64(time.Since(t).Nanoseconds())/1000)
					x.Tidy()
					continue
				}
				for i := first; i < n; i++ {
					slices.Reverse(chain(keys, i))
					check(x.Remove(holders[0], keys))
				}
			}
		}()
		asked := make([]uint64, prompt)
		r := rand.New(rand.NewPCG(1, 2))
		var ns samples
		for t := time.Now(); time.Since(t).Seconds() < float64(env("SECONDS", 10)); {
			ns = append(ns, ask(x, 1000, func() []uint64 { return chain(asked, 1<<30+r.Uint64N(1000)) })...)
		}
		stop.Store(true)
		<-finished
		slices.Sort(ns)
		late := len(ns) - len(ns[:func() int { i, _ := slices.BinarySearch(ns, 100_000); return i }()])
		out := map[string]any{"mode": mode, "queries": len(ns), "p50_us": ns.at(.5), "p9999_us": ns.at(.9999), "max_us": ns.at(1), "over_100us": late,
			"over_100us_per_million": float64(late) * 1e6 / float64(len(ns))}
		if len(clears) > 0 {
			slices.Sort(clears)
			out["clears"], out["clear_p50_us"], out["clear_max_us"] = len(clears), clears[len(clears)/2], clears[len(clears)-1]
		}
		emit("clear", out)
	}
}

func scale(name string) {
	run := scales[name]
	if run == nil {
		fmt.Fprintln(os.Stderr, "scales: big clear growth soak workers")
		os.Exit(2)
	}
	run()
}

// Command kvw replays a recorded workload through KV-cache indexes in Go.
//
//	kvw BACKEND MODE FILE
//	kvw compare RUNS.jsonl
//	kvw scale NAME
//	kvw plot RUNS.jsonl DIR
//
// MODE: apply1 | apply2 | seq | read1 | read2 | rw | mem, as in the Rust harness.
// LIMIT=n stops after n stored blocks, QUERIES=n keeps one query in n.
package main

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// backend is one peer.
type backend interface {
	apply(o *op)    // store or remove
	reader() reader // one a reading goroutine
}

// reader asks queries.
type reader interface {
	prepare(hashes []uint64)    // what a query needs, not timed
	find() (best, total uint32) // timed: the longest prefix, and the sum over all workers
}

var backends = map[string]func(w *workload) backend{}

func env(name string, def uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return def
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "compare" {
		compare(os.Args[2])
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "scale" {
		scale(os.Args[2])
		return
	}
	if len(os.Args) == 4 && os.Args[1] == "plot" {
		plot(os.Args[2], os.Args[3])
		return
	}
	if len(os.Args) != 4 || backends[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: kvw BACKEND MODE FILE\n       kvw compare RUNS.jsonl\n       kvw scale NAME\n       kvw plot RUNS.jsonl DIR\nbackends: %s\nmodes: apply1 apply2 seq read1 read2 rw mem\n",
			strings.Join(slices.Sorted(maps.Keys(backends)), " "))
		os.Exit(2)
	}
	name, mode := os.Args[1], os.Args[2]
	w := load(os.Args[3])
	limit, every := env("LIMIT", 1<<62), env("QUERIES", 1)
	var stored, removed, asked uint64
	for i := range w.ops {
		switch o := &w.ops[i]; o.kind {
		case store:
			stored += uint64(len(o.hashes))
		case remove:
			removed += uint64(len(o.hashes))
		}
		if stored >= limit {
			w.ops = w.ops[:i+1]
			break
		}
	}
	var writes, queries []*op
	kept := w.ops[:0]
	for _, o := range w.ops {
		if o.kind == query {
			if asked++; asked%every != 0 {
				continue
			}
		}
		kept = append(kept, o)
	}
	w.ops = kept
	for i := range w.ops {
		if o := &w.ops[i]; o.kind == query {
			queries = append(queries, o)
		} else {
			writes = append(writes, o)
		}
	}
	blocks := float64(stored + removed)
	head := fmt.Sprintf(`{"backend":"%s","mode":"%s","workers":%d`, name, mode, w.workers)
	create := backends[name]

	if path := os.Getenv("CPUPROFILE"); path != "" {
		f, err := os.Create(path)
		check(err)
		check(pprof.StartCPUProfile(f))
		defer pprof.StopCPUProfile()
	}
	switch mode {
	case "apply1", "apply2":
		n := int(mode[5] - '0')
		b := create(w)
		runtime.GC()
		t, c := time.Now(), cpuSeconds()
		var wg sync.WaitGroup
		for k := range n {
			wg.Go(func() {
				for _, o := range writes {
					if o.worker%n == k {
						b.apply(o)
					}
				}
			})
		}
		wg.Wait()
		s, c := time.Since(t).Seconds(), cpuSeconds()-c
		fmt.Printf(`%s,"seconds":%.3f,"cpu_s":%.3f,"block_ops_per_s":%.0f,"cpu_ns_per_block_op":%.1f}`+"\n",
			head, s, c, blocks/s, c*1e9/blocks)
	case "seq":
		b := create(w)
		rd := b.reader()
		var ns samples
		over, under, depth := 0, 0, 0
		for i := range w.ops {
			o := &w.ops[i]
			if o.kind != query {
				b.apply(o)
				continue
			}
			rd.prepare(o.hashes)
			depth += len(o.hashes)
			t := time.Now()
			best, total := rd.find()
			ns = append(ns, since(t))
			wb, wt := uint32(o.extra), uint32(o.extra>>32)
			if best > wb || total > wt {
				over++
			} else if best != wb || total != wt {
				under++
			}
		}
		fmt.Printf(`%s,"over":%d,"under":%d,%s,"queries_per_s":%.0f,"ns_per_block":%.2f}`+"\n", head, over, under,
			ns, float64(len(ns))/ns.seconds(), ns.seconds()*1e9/float64(depth))
	case "read1", "read2":
		n := int(mode[4] - '0')
		b := create(w)
		for _, o := range writes {
			b.apply(o)
		}
		runtime.GC()
		last := queries[len(queries)-min(len(queries), 4000/int(every)):]
		all := make([]samples, n)
		rates := make([]float64, n)
		var wg sync.WaitGroup
		for k := range n {
			wg.Go(func() {
				rd := b.reader()
				start := time.Now()
				for time.Since(start).Seconds() < 3 {
					for i := k; i < len(last) && time.Since(start).Seconds() < 3; i += n {
						rd.prepare(last[i].hashes)
						t := time.Now()
						rd.find()
						all[k] = append(all[k], since(t))
					}
				}
				rates[k] = float64(len(all[k])) / all[k].seconds()
			})
		}
		wg.Wait()
		var ns samples
		rate := 0.0
		for k := range n {
			ns, rate = append(ns, all[k]...), rate+rates[k]
		}
		fmt.Printf(`%s,%s,"queries_per_s":%.0f}`+"\n", head, ns, rate)
	case "rw":
		b := create(w)
		half, i := uint64(0), 0
		for ; half*2 < stored; i++ {
			if o := &w.ops[i]; o.kind != query {
				b.apply(o)
				if o.kind == store {
					half += uint64(len(o.hashes))
				}
			}
		}
		rest := w.ops[i:]
		var done atomic.Bool
		var written int
		var writeSeconds float64
		go func() {
			t := time.Now()
			for i := range rest {
				if o := &rest[i]; o.kind != query {
					b.apply(o)
					written += len(o.hashes)
				}
			}
			writeSeconds = time.Since(t).Seconds()
			done.Store(true)
		}()
		rd := b.reader()
		var ns samples
		t0 := time.Now()
		for !done.Load() {
			for i := range rest {
				if o := &rest[i]; o.kind == query {
					rd.prepare(o.hashes)
					t := time.Now()
					rd.find()
					ns = append(ns, since(t))
					if done.Load() {
						break
					}
				}
			}
		}
		s := time.Since(t0).Seconds()
		fmt.Printf(`%s,%s,"queries_per_s":%.0f,"write_block_ops_per_s":%.0f}`+"\n", head, ns,
			float64(len(ns))/s, float64(written)/writeSeconds)
	case "mem":
		debug.FreeOSMemory()
		var m0, m1 runtime.MemStats
		runtime.ReadMemStats(&m0)
		r0 := rss()
		b := create(w)
		for _, o := range writes {
			b.apply(o)
		}
		high := rss() - r0
		runtime.GC()
		debug.FreeOSMemory()
		runtime.ReadMemStats(&m1)
		heap, after := float64(m1.HeapAlloc-m0.HeapAlloc), float64(rss()-r0)
		live, uniq := live(writes, w)
		fmt.Printf(`%s,"heap_mib":%.1f,"rss_mib":%.1f,"rss_before_gc_mib":%.1f,"rss_per_membership":%.1f,"rss_per_unique":%.1f,"heap_per_membership":%.1f,"heap_per_unique":%.1f}`+"\n",
			head, heap/(1<<20), after/(1<<20), float64(high)/(1<<20), after/live, after/uniq, heap/live, heap/uniq)
		runtime.KeepAlive(b)
		runtime.KeepAlive(w)
	}
}

// live counts what is held after the operations (they may have been cut short).
func live(writes []*op, w *workload) (memberships, unique float64) {
	if env("LIMIT", 0) == 0 {
		return float64(w.live), float64(w.unique_)
	}
	held := map[uint64]uint64{}
	for _, o := range writes {
		for _, h := range o.hashes {
			if o.kind == store {
				held[h] |= 1 << o.worker
			} else if held[h] &^= 1 << o.worker; held[h] == 0 {
				delete(held, h)
			}
		}
	}
	for _, v := range held {
		for ; v != 0; v &= v - 1 {
			memberships++
		}
	}
	return memberships, float64(len(held))
}

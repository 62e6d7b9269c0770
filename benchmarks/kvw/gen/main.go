// Command gen turns a Mooncake request trace into a deterministic stream of
// store, remove and query operations for index benchmarks.
//
//	go run ./kvw/gen -trace TRACE.jsonl[.gz] -workers 8 -out w8.kvw
//
// The file format is described in ../WORKLOAD.md.
package main

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/bits"
	"os"
	"strings"
)

const (
	tokensPerBlock  = 16
	traceBlock      = 512 // tokens one trace hash_id stands for
	blocksPerID     = traceBlock / tokensPerBlock
	opStore         = 1
	opRemove        = 2
	opQuery         = 3
	headerBytes     = 128
	decodeNamespace = 0x6465636f64650000 // keeps decode blocks apart from prompt blocks
)

func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// chain derives a block's hash from its parent's hash and its own content.
func chain(parent, content uint64) uint64 {
	h := mix(bits.RotateLeft64(parent, 25) ^ mix(content+0x9e3779b97f4a7c15))
	if h == 0 {
		return 1 // 0 means "no parent" in the file
	}
	return h
}

type rng struct{ s uint64 }

func (r *rng) next() uint64 {
	r.s += 0x9e3779b97f4a7c15
	return mix(r.s)
}

func (r *rng) intn(n int) int {
	hi, _ := bits.Mul64(r.next(), uint64(n))
	return int(hi)
}

type request struct {
	InputLength  int   `json:"input_length"`
	OutputLength int   `json:"output_length"`
	HashIDs      []int `json:"hash_ids"`
}

// cache is one worker's block cache: every block is in an LRU list, and a
// request's blocks are returned to the list deepest first, so that the end of a
// chain is evicted before its beginning.
type cache struct {
	nodes      map[uint64]int32
	hash       []uint64
	prev, next []int32
	free       []int32
	capacity   int
}

func newCache(capacity int) *cache {
	c := &cache{nodes: make(map[uint64]int32, capacity), capacity: capacity}
	c.hash, c.prev, c.next = []uint64{0}, []int32{0}, []int32{0} // node 0 is the list head
	return c
}

func (c *cache) unlink(n int32) {
	c.next[c.prev[n]], c.prev[c.next[n]] = c.next[n], c.prev[n]
}

func (c *cache) pushNewest(n int32) {
	last := c.prev[0]
	c.next[last], c.prev[n], c.next[n], c.prev[0] = n, last, 0, n
}

// admit makes room for and inserts the blocks of chain that are missing after
// the first `have`; it returns the hashes that were evicted for them.
func (c *cache) admit(chainHashes []uint64, have int) (evicted []uint64) {
	for _, h := range chainHashes[:have] { // referenced: cannot be evicted
		c.unlink(c.nodes[h])
	}
	for len(c.nodes)+len(chainHashes)-have > c.capacity {
		oldest := c.next[0]
		if oldest == 0 {
			panic("capacity is below the longest request")
		}
		c.unlink(oldest)
		delete(c.nodes, c.hash[oldest])
		evicted = append(evicted, c.hash[oldest])
		c.free = append(c.free, oldest)
	}
	for _, h := range chainHashes[have:] {
		var n int32
		if k := len(c.free); k > 0 {
			n, c.free = c.free[k-1], c.free[:k-1]
			c.hash[n] = h
		} else {
			n = int32(len(c.hash))
			c.hash, c.prev, c.next = append(c.hash, h), append(c.prev, 0), append(c.next, 0)
		}
		c.nodes[h] = n
	}
	for i := len(chainHashes) - 1; i >= 0; i-- {
		c.pushNewest(c.nodes[chainHashes[i]])
	}
	return evicted
}

type writer struct {
	f                                    *os.File
	w                                    *bufio.Writer
	ops, queries                         uint64
	storeBlocks, removeBlocks, askBlocks uint64
	stores, removes                      uint64
}

func (w *writer) u64s(v ...uint64) {
	var b [8]byte
	for _, x := range v {
		binary.LittleEndian.PutUint64(b[:], x)
		w.w.Write(b[:])
	}
}

// op writes one operation: 4 u32 (kind, worker, n, 0), u64 extra, n hashes.
func (w *writer) op(kind, worker int, extra uint64, hashes []uint64) {
	w.ops++
	w.u64s(uint64(kind)|uint64(worker)<<32, uint64(len(hashes)), extra)
	w.u64s(hashes...)
}

func main() {
	trace := flag.String("trace", "", "Mooncake trace (JSON lines)")
	out := flag.String("out", "", "output file")
	workers := flag.Int("workers", 8, "number of workers, at most 64")
	capacity := flag.Int("capacity", 20000, "blocks a worker's cache holds")
	storeTarget := flag.Uint64("stores", 2_000_000, "stop after this many stored blocks")
	perRequest := flag.Int("queries", 5, "queries a request: its own and repeats of recent ones")
	recent := flag.Int("recent", 512, "how far back a repeated query may lie, in requests")
	chunk := flag.Int("chunk", 512, "blocks a store event carries at most (chunked prefill)")
	affinity := flag.Int("affinity", 80, "percent of requests routed to the longest prefix; the rest go round robin")
	seed := flag.Uint64("seed", 42, "seed")
	flag.Parse()
	if *workers < 1 || *workers > 64 {
		fmt.Fprintln(os.Stderr, "workers must be in 1..64")
		os.Exit(2)
	}

	in, err := os.Open(*trace)
	check(err)
	var lines io.Reader = in
	if strings.HasSuffix(*trace, ".gz") {
		lines, err = gzip.NewReader(in)
		check(err)
	}
	var reqs []request
	sc := bufio.NewScanner(lines)
	sc.Buffer(make([]byte, 1<<20), 1<<24)
	for sc.Scan() {
		var r request
		check(json.Unmarshal(sc.Bytes(), &r))
		reqs = append(reqs, r)
	}
	check(sc.Err())

	f, err := os.Create(*out)
	check(err)
	w := &writer{f: f, w: bufio.NewWriterSize(f, 1<<20)}
	w.w.Write(make([]byte, headerBytes))

	caches := make([]*cache, *workers)
	for i := range caches {
		caches[i] = newCache(*capacity)
	}
	holders := make(map[uint64]uint64) // block -> bit per worker
	assigned := make([]uint64, *workers)
	var history [][]uint64
	r := &rng{s: *seed}
	robin := 0
	longest, served := 0, 0
	var hitBlocks uint64

	// match returns per worker how many leading blocks it holds.
	depth := make([]int, *workers)
	match := func(q []uint64) (best, total int) {
		for i := range depth {
			depth[i] = 0
		}
		alive := ^uint64(0) >> (64 - *workers)
		for i, h := range q {
			still := alive & holders[h]
			for gone := alive &^ still; gone != 0; gone &= gone - 1 {
				depth[bits.TrailingZeros64(gone)] = i
			}
			if alive = still; alive == 0 {
				break
			}
		}
		for ; alive != 0; alive &= alive - 1 {
			depth[bits.TrailingZeros64(alive)] = len(q)
		}
		for _, d := range depth {
			best, total = max(best, d), total+d
		}
		return best, total
	}
	var bestBlocks, holdersSeen uint64
	query := func(q []uint64) {
		best, total := match(q)
		bestBlocks += uint64(best)
		for _, d := range depth {
			if d > 0 {
				holdersSeen++
			}
		}
		w.op(opQuery, 0, uint64(best)|uint64(total)<<32, q)
		w.queries++
		w.askBlocks += uint64(len(q))
	}

	for at := 0; w.storeBlocks < *storeTarget; at++ {
		lap := uint64(at / len(reqs)) // past the end the trace starts again in a fresh hash space
		req := reqs[at%len(reqs)]
		n := min(req.InputLength/tokensPerBlock, len(req.HashIDs)*blocksPerID)
		if n == 0 {
			continue
		}
		full := make([]uint64, 0, n+req.OutputLength/tokensPerBlock)
		var h uint64
		for i := range n {
			h = chain(h, lap<<48|uint64(req.HashIDs[i/blocksPerID])<<8|uint64(i%blocksPerID))
			full = append(full, h)
		}
		prompt := full[:n:n]
		for i := range req.OutputLength / tokensPerBlock {
			h = chain(h, decodeNamespace^uint64(at)<<16^uint64(i))
			full = append(full, h)
		}
		longest = max(longest, n)

		query(prompt)
		for range *perRequest - 1 {
			if len(history) > 0 {
				query(history[len(history)-1-r.intn(min(len(history), *recent))])
			}
		}

		match(prompt)
		target := robin % *workers
		if r.intn(100) < *affinity {
			target = 0
			for i := range depth {
				if depth[i] > depth[target] || depth[i] == depth[target] && assigned[i] < assigned[target] {
					target = i
				}
			}
		} else {
			robin++
		}
		assigned[target]++
		have := depth[target]
		hitBlocks += uint64(have)
		bit := uint64(1) << target

		if evicted := caches[target].admit(full, have); len(evicted) > 0 {
			for _, e := range evicted {
				if holders[e] &^= bit; holders[e] == 0 {
					delete(holders, e)
				}
			}
			w.op(opRemove, target, 0, evicted)
			w.removes++
			w.removeBlocks += uint64(len(evicted))
		}
		for i := have; i < len(full); { // prompt in chunks, output block by block
			k := 1
			if i < n {
				k = min(*chunk, n-i)
			}
			var parent uint64
			if i > 0 {
				parent = full[i-1]
			}
			w.op(opStore, target, parent, full[i:i+k])
			w.stores++
			i += k
		}
		for _, b := range full[have:] {
			holders[b] |= bit
		}
		w.storeBlocks += uint64(len(full) - have)
		history = append(history, prompt)
		served++
	}

	check(w.w.Flush())
	var live uint64
	for _, c := range caches {
		live += uint64(len(c.nodes))
	}
	head := make([]byte, headerBytes)
	copy(head, "KVWL0001")
	for i, v := range []uint64{
		uint64(*workers), uint64(*capacity), w.ops, w.stores, w.removes, w.queries,
		w.storeBlocks, w.removeBlocks, w.askBlocks, live, uint64(len(holders)),
		uint64(longest), *seed, uint64(served), hitBlocks,
	} {
		binary.LittleEndian.PutUint64(head[8+8*i:], v)
	}
	_, err = f.WriteAt(head, 0)
	check(err)
	check(f.Close())
	fmt.Printf("requests %d, prompt hit rate %.1f %%\n", served,
		100*float64(hitBlocks)/float64(w.askBlocks)*float64(w.queries)/float64(served))
	fmt.Printf("ops %d: stores %d (%d blocks), removes %d (%d blocks), queries %d (%d blocks, mean %.0f, longest %d)\n",
		w.ops, w.stores, w.storeBlocks, w.removes, w.removeBlocks, w.queries, w.askBlocks,
		float64(w.askBlocks)/float64(w.queries), longest)
	fmt.Printf("a query's best prefix: mean %.0f blocks; workers with any: mean %.1f\n",
		float64(bestBlocks)/float64(w.queries), float64(holdersSeen)/float64(w.queries))
	fmt.Printf("live at the end: %d memberships, %d unique blocks\n", live, len(holders))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

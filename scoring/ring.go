package scoring

import (
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/zeebo/xxh3"
)

// Ring is a consistent-hash ring: each worker has a number of virtual nodes, and
// a key belongs to the first node at or after it. Adding or removing a worker
// moves only the keys of its own arcs. The ring is never built as a whole: each
// worker's nodes are kept sorted, so any subset of workers is a ring of its own
// at no cost.
//
// Create it with [NewRing]. It is safe for concurrent use. Memory is 8 bytes for
// each virtual node of each worker name seen; at 65,536 names it starts afresh.
type Ring struct {
	o     RingOptions
	mu    sync.RWMutex
	nodes map[string][]uint64
}

// RingOptions are the options of [NewRing].
type RingOptions struct {
	// VirtualNodes for each worker; 0 means 100.
	VirtualNodes int
	// BoundedLoad c > 0 passes a key on to the next worker when the first has
	// more than ceil(c·(all requests + 1)/workers) requests with this one
	// (consistent hashing with bounded loads). It must be at least 1; 1.25 is
	// usual. It works on [Load.Requests]; unknown counts as the mean.
	BoundedLoad float64
}

const (
	maxVirtualNodes = 65536
	maxRingNames    = 65536
)

// NewRing returns a ring.
func NewRing(o RingOptions) (*Ring, error) {
	if o.VirtualNodes < 0 || o.VirtualNodes > maxVirtualNodes {
		return nil, optionErrorf("VirtualNodes", "is %d; 1 to %d are possible (0 means 100)", o.VirtualNodes, maxVirtualNodes)
	}
	if o.VirtualNodes == 0 {
		o.VirtualNodes = 100
	}
	if err := nonNegative("BoundedLoad", o.BoundedLoad); err != nil {
		return nil, err
	}
	if o.BoundedLoad > 0 && o.BoundedLoad < 1 {
		return nil, optionErrorf("BoundedLoad", "is %v; at least 1 is needed, or 0 for no bound", o.BoundedLoad)
	}
	return &Ring{o: o, nodes: map[string][]uint64{}}, nil
}

// fill sets dst so that the owner of the key has the highest value, and the
// workers after it on the ring follow in order.
func (r *Ring) fill(key uint64, candidates []*Candidate, dst []float64) {
	limit := math.Inf(1)
	if r.o.BoundedLoad > 0 {
		fill(Requests, candidates, dst)
		sum := 0.0
		for _, v := range dst {
			sum += v
		}
		limit = math.Ceil(r.o.BoundedLoad * (sum + 1) / float64(len(candidates)))
	} else {
		clear(dst)
	}
	for i, c := range candidates {
		over := dst[i]+1 > limit
		dst[i] = -r.distance(key, c.Name)
		if over {
			dst[i]-- // behind everybody within the bound
		}
	}
}

// distance returns how far it is from a key to the next node of a worker, as a
// part of the ring.
func (r *Ring) distance(key uint64, name string) float64 {
	r.mu.RLock()
	nodes, ok := r.nodes[name]
	r.mu.RUnlock()
	if !ok {
		nodes = r.place(name)
	}
	i, _ := slices.BinarySearch(nodes, key)
	if i == len(nodes) {
		i = 0 // round the ring
	}
	return float64(nodes[i]-key) / (1 << 64)
}

func (r *Ring) place(name string) []uint64 {
	nodes := make([]uint64, r.o.VirtualNodes)
	buf := append([]byte(name), '#')
	for i := range nodes {
		nodes[i] = xxh3.Hash(strconv.AppendInt(buf, int64(i), 10))
	}
	slices.Sort(nodes)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.nodes) >= maxRingNames {
		clear(r.nodes)
	}
	r.nodes[name] = nodes
	return nodes
}

func sessionKey(session string) uint64 { return xxh3.HashString(session) }

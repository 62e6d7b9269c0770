package main

import (
	"fmt"

	"github.com/kvatlas/kvatlas/radix"
)

// kvatlas is ours: radix.Index through its public API. A query asks for the
// prefix of every worker (Prefixes), as the peers' scoring calls do; with match
// it asks for the whole answer (Match): tokens, media, score for each worker; sized
// is told how many blocks to expect.
type kvatlas struct {
	x       *radix.Index
	workers []radix.WorkerID
	match   bool
}

func init() {
	for _, name := range []string{"kvatlas", "kvatlas-match", "kvatlas-sized"} {
		backends[name] = func(w *workload) backend {
			var o radix.Options
			if name == "kvatlas-sized" {
				o.ExpectedBlocks = int(w.unique_)
			}
			x, err := radix.New(o)
			check(err)
			p, err := radix.NewProfile(radix.ProfileOptions{HashUnit: 16})
			check(err)
			k := &kvatlas{x: x, match: name == "kvatlas-match"}
			for i := range w.workers {
				id, err := x.AddWorker(fmt.Sprint("worker-", i), p)
				check(err)
				k.workers = append(k.workers, id)
			}
			return k
		}
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func (k *kvatlas) apply(o *op) {
	h := radix.Holder{Worker: k.workers[o.worker]}
	if o.kind == store {
		check(k.x.StoreAfter(h, o.extra, o.hashes))
	} else {
		check(k.x.Remove(h, o.hashes))
	}
}

type kvatlasReader struct {
	*kvatlas
	q radix.Query
	r radix.Result
}

func (k *kvatlas) reader() reader { return &kvatlasReader{kvatlas: k} }

func (k *kvatlasReader) prepare(h []uint64) {
	k.q.Keys = append(k.q.Keys[:0], h...)
	k.q.Tokens = 16*len(h) + 1
}

func (k *kvatlasReader) find() (best, total uint32) {
	if k.match {
		check(k.x.Match(&k.q, &k.r))
		for i := range k.r.Workers {
			n := uint32(k.r.Workers[i].Usable / 16)
			best = max(best, n)
			total += n
		}
		return best, total
	}
	found, err := k.x.Prefixes(&k.q, &k.r)
	check(err)
	for _, p := range found {
		best = max(best, uint32(p.Blocks))
		total += uint32(p.Blocks)
	}
	return best, total
}

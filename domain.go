package kvatlas

import (
	"slices"
	"strings"
	"sync"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/radix"
)

// domain is a set of workers that give one prompt one sequence of keys, and
// their index.
type domain struct {
	key     domainKey
	index   *radix.Index
	hasher  *blockhash.Hasher  // nil where keys are made from content
	content *blockhash.Content // nil where keys are the engine's hashes
	// adapters makes keys of the prompts of adapters whose namespace only the engine
	// knows; nil where they hash like others.
	adapters *blockhash.Content
	users    int // guarded by domains.mu
}

type domainKey struct {
	scheme          blockhash.Scheme
	algorithm       blockhash.Algorithm
	seed            blockhash.Seed
	unit, lookahead int
	eagle, dynamo   bool             // SGLang: pages of pairs; events in "format": "dynamo"
	content, nodes  bool             // keys are made from content; of whole nodes of a tree
	plainOnly       bool             // content keys of plain prompts are to be trusted
	beside          blockhash.Scheme // of chunks: the vLLM that LMCache runs in
	partial         bool             // of chunks: the last one need not be full
	relay           bool             // keys are hashed here, from what events say of tokens
	mixed           bool             // of relays: these do not tell salted blocks and those of adapters from plain ones
	xxh3            uint64           // Dynamo, Mooncake: the seed
}

// medium finds a medium of the index by its name, "" being the device, and does not
// register it.
func (d *domain) medium(name string) (radix.Medium, bool) {
	for m := range radix.Medium(radix.MaxMedia) {
		if name != "" && strings.EqualFold(d.index.MediumName(m), name) {
			return m, true
		}
	}
	return radix.GPU, name == ""
}

// eventKeys makes the keys of what events announce.
func (d *domain) eventKeys() eventKeys {
	if d.key.relay {
		return d.hasher
	}
	return d.content
}

func (k domainKey) options() blockhash.Options {
	return blockhash.Options{
		Scheme: k.scheme, Algorithm: k.algorithm, BlockSize: k.unit, Lookahead: k.lookahead, Seed: k.seed,
		EAGLE: k.eagle, DynamoEvents: k.dynamo, Beside: k.beside, PartialChunk: k.partial, XXH3Seed: k.xxh3,
	}
}

// adapters tells whether the prompts of adapters have a namespace that only the engine
// knows.
func (k domainKey) adapters() bool {
	return !k.content && !k.eagle && (k.dynamo || k.scheme.AdapterNamespaces())
}

func (k domainKey) hasher(memoBytes int64) (*blockhash.Hasher, error) {
	o := k.options()
	if k.scheme.Engine() == "vllm" {
		o.MemoBytes = memoBytes // others' hashes cost less than remembering them
	}
	return blockhash.New(o)
}

// differ returns the features of prompts whose keys are others under o; ok is false
// when all are. Domains that differ in some only share an index, and a worker that
// turns out to be of another release moves between them without its blocks.
func (k domainKey) differ(o domainKey) (f blockhash.Features, ok bool) {
	if k.content != o.content || k.nodes != o.nodes || k.relay != o.relay || k.plainOnly != o.plainOnly {
		return 0, false
	}
	if !k.content {
		return blockhash.Differ(k.options(), o.options())
	}
	if k.unit != o.unit || k.lookahead != o.lookahead {
		return 0, false
	}
	return k.scheme.DifferByContent(o.scheme)
}

func (k domainKey) plainAlike(o domainKey) bool {
	_, ok := k.differ(o)
	return ok
}

// domains are those in use. Its lock comes after those of workers.
type domains struct {
	options   radix.Options // of each index
	memoBytes int64

	mu  sync.Mutex
	all []*domain
}

// take finds the domain of a key among those in use, or makes it. Whoever takes one
// must give it back.
func (r *domains) take(key domainKey) (*domain, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := &domain{key: key}
	for _, o := range r.all {
		if o.key == key {
			o.users++
			return o, nil
		}
		if d.index == nil && o.key.plainAlike(key) {
			d.index = o.index
		}
	}
	var err error
	if key.content {
		d.content, err = blockhash.NewContent(blockhash.ContentOptions{Scheme: key.scheme, BlockSize: key.unit, Lookahead: key.lookahead})
	} else {
		d.hasher, err = key.hasher(r.memoBytes)
	}
	if err == nil && key.adapters() {
		d.adapters, err = blockhash.NewContent(blockhash.ContentOptions{Scheme: key.scheme, BlockSize: key.unit})
	}
	if err == nil && d.index == nil {
		d.index, err = radix.New(r.options)
	}
	if err != nil {
		return nil, err
	}
	d.users = 1
	r.all = append(r.all, d)
	return d, nil
}

// give gives a domain back. One that nobody uses goes.
func (r *domains) give(d *domain) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.users--; d.users == 0 {
		r.all = slices.DeleteFunc(r.all, func(o *domain) bool { return o == d })
	}
}

// among returns the first of the keys that has a domain in use, else the first.
func (r *domains) among(keys []domainKey) domainKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		if slices.ContainsFunc(r.all, func(d *domain) bool { return d.key == key }) {
			return key
		}
	}
	return keys[0]
}

// list returns those in use at this moment.
func (r *domains) list() []*domain {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

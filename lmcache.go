package kvatlas

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
)

// LMCache describes the LMCache of a vLLM worker that publishes KV events
// (enable_kv_events). Its chunks come in vLLM's stream, but are of another size and
// of other hashes than vLLM's blocks: they are kept apart, never count as
// blocks of the device, and give [radix.WorkerMatch.External]: what LMCache would
// load beyond the local hit, whole chunks from the prompt's start, less one token
// where it has the whole prompt (get_num_new_matched_tokens of both connectors).
//
// What no event tells: chunks that other instances stored in a shared backend are
// loaded too, so External may be too low; min_retrieve_tokens, max_tokens_per_load
// and skip_last_n_tokens of LMCache's configuration are not applied. Multimodal
// prompts and embeddings get nothing from it, since LMCache puts other ids in their
// place. The salt is ignored, as LMCache's hashes ignore it.
type LMCache struct {
	// Release is LMCache's release, such as "0.5.6". Required.
	Release string
	// Multiprocess says that the connector is LMCacheMPConnector, with a server of its
	// own, not LMCacheConnectorV1.
	Multiprocess bool
	// Hash is the hash algorithm by LMCache's name for it; "" is its default: "blake3"
	// of the server, else "builtin", Python's own hash, which cannot be computed here.
	// Then chunks are known by their content. So they are where the
	// root is random (vLLM's rules, by Worker.Seed and Release). Only events that say
	// where a chunk lies count there: chunks that LMCache appends to a prefix it
	// had before name no parent and match nothing.
	Hash string
	// ChunkTokens is chunk_size; 0 is 256, LMCache's default. With Multiprocess it is a
	// multiple of the block size.
	ChunkTokens int
	// PartialChunks is save_unfull_chunk: the last chunk of a prompt is stored though
	// it is not full.
	PartialChunks bool
	// Decay is for how long an announced chunk counts: in process LMCache announces no
	// removal, so all that is known is a set that grows. 0 is [DefaultDecay]; a
	// negative one is for ever. Announcing a chunk again starts anew. It does not apply to
	// Multiprocess, which announces removals.
	Decay time.Duration
	// MaxChunks is how many announced chunks count, those announced last: take
	// max_local_cpu_size by the size of a chunk where nothing else is behind it. 0 is
	// 1,048,576. It does not apply to Multiprocess.
	MaxChunks int
}

const (
	// DefaultDecay is how long a chunk that is never removed counts by default.
	DefaultDecay = 10 * time.Minute

	defaultChunk     = 256
	defaultMaxChunks = 1 << 20
)

// chunkState is what a worker's LMCache holds. Its owner is the worker, whose mutex
// is held in every call but those that say so.
type chunkState struct {
	LMCache
	w       *worker
	domain  *domain
	id      radix.WorkerID // in the domain's index
	content *contentState  // nil where chunks are known by hash
	now     func() time.Time
	// wrong is what the events say against the description; nil if nothing.
	wrong atomic.Pointer[string]

	// What was announced, first to last; an entry counts while latest has it.
	queue  []announced
	latest map[uint64]uint64 // by hash the serial of its last announcement
	serial uint64
	due    atomic.Int64 // when the first of the queue decays, in ns; 0 = never
}

type announced struct {
	hash, serial uint64
	at           int64 // ns
}

func (w *Worker) checkLMCache() error {
	l := w.LMCache
	switch {
	case l == nil:
		return nil
	case w.Auto:
		return fmt.Errorf("%w: LMCache of an automatic worker, whose hashes start from those of its vLLM: give Release, BlockSize, Algorithm and Seed, and not Auto", ErrUnsupported)
	case w.Engine != "vllm":
		return fmt.Errorf("%w: LMCache in %s: its events are known from vLLM only", ErrUnsupported, w.Engine)
	case w.Cache.Connector != radix.NoConnector:
		return fmt.Errorf("%w: LMCache beside another offload connector", ErrUnsupported)
	case l.ChunkTokens < 0, l.MaxChunks < 0:
		return fmt.Errorf("%w: LMCache with chunks of %d tokens, at most %d of them", ErrOptions, l.ChunkTokens, l.MaxChunks)
	}
	own := *l
	own.ChunkTokens = cmp.Or(own.ChunkTokens, defaultChunk)
	if own.Multiprocess && w.BlockSize > 0 && own.ChunkTokens%w.BlockSize != 0 { // in process any size goes
		return fmt.Errorf("%w: chunks of %d tokens: LMCache's server wants a multiple of the block size %d", ErrOptions, own.ChunkTokens, w.BlockSize)
	}
	own.MaxChunks = cmp.Or(own.MaxChunks, defaultMaxChunks)
	own.Decay = cmp.Or(own.Decay, DefaultDecay)
	if own.Hash == "" && own.Multiprocess {
		own.Hash = blockhash.BLAKE3.String()
	}
	w.LMCache = &own
	return nil
}

// chunkKey says which prompts have the same chunk keys.
func (w *Worker) chunkKey() (domainKey, error) {
	l := w.LMCache
	engine := "lmcache"
	if l.Multiprocess {
		engine = "lmcache-server"
	}
	scheme, err := blockhash.SchemeFor(engine, l.Release)
	if err != nil {
		return domainKey{}, err
	}
	content := domainKey{scheme: scheme, unit: l.ChunkTokens, content: true}
	if l.Hash == "" || l.Hash == "builtin" {
		return content, nil
	}
	beside, err := blockhash.SchemeFor(w.Engine, w.Release)
	if err != nil {
		return domainKey{}, err
	}
	// LMCache kept the name "sha256_cbor_64bit" for "sha256_cbor".
	algorithm, err := blockhash.ParseAlgorithm(strings.TrimSuffix(l.Hash, "_64bit"))
	if err != nil {
		return domainKey{}, err
	}
	key := domainKey{
		scheme: scheme, beside: beside, algorithm: algorithm, seed: w.Seed, unit: l.ChunkTokens,
		partial: l.PartialChunks && !l.Multiprocess,
	}
	_, err = key.hasher(0)
	if errors.Is(err, blockhash.ErrRoot) && w.Seed == (blockhash.Seed{}) {
		return content, nil
	}
	return key, err
}

// addChunks registers the worker's LMCache in its domain.
func (a *Atlas) addChunks(w *worker) error {
	if w.LMCache == nil {
		return nil
	}
	key, err := w.chunkKey()
	if err != nil {
		return err
	}
	profile, err := radix.NewProfile(radix.ProfileOptions{HashUnit: key.unit, Copies: radix.Set, Clear: radix.ClearAll})
	if err != nil {
		return err
	}
	d, err := a.domains.take(key)
	if err != nil {
		return err
	}
	c := &chunkState{LMCache: *w.LMCache, w: w, domain: d, now: a.now, latest: map[uint64]uint64{}}
	if c.id, err = d.index.AddWorker(w.Name, profile); err != nil {
		a.domains.give(d)
		return err
	}
	if key.content {
		if c.content, err = newContentState(d, c.id, w); err != nil {
			d.index.RemoveWorker(c.id)
			a.domains.give(d)
			return err
		}
	}
	w.chunks = c
	return nil
}

// takes tells whether an event is LMCache's: there is no other tier on the host of
// a worker that has it.
func (c *chunkState) takes(e *kvevents.Event) bool {
	return e.Kind != kvevents.AllBlocksCleared && bytes.EqualFold(e.Medium, []byte("cpu"))
}

// applyChunks applies an event of LMCache.
func (w *worker) applyChunks(e *kvevents.Event) error {
	if e.Kind == kvevents.BlockStored {
		w.stats.Stored++
	} else {
		w.stats.Removed++
	}
	return w.chunks.apply(e)
}

// describe fills in what is known of the chunks.
func (c *chunkState) describe(s *WorkerStats) {
	c.expire(c.now().UnixNano())
	s.Decayed = c.w.stats.Decayed
	if x, err := c.domain.index.WorkerStats(c.id); err == nil {
		for _, h := range x.Held {
			s.Chunks += uint64(h.Blocks)
		}
	}
	if why := c.wrong.Load(); why != nil {
		s.ChunkContradiction = *why
	}
}

func (c *chunkState) apply(e *kvevents.Event) error {
	c.expire(c.now().UnixNano())
	if e.Kind == kvevents.BlockRemoved {
		for _, hash := range e.Hashes {
			delete(c.latest, hash)
		}
		return c.remove(e.Hashes)
	}
	if why := c.check(e); why != "" {
		c.wrong.Store(&why)
		return c.clear()
	}
	if c.wrong.Load() != nil {
		return nil
	}
	if err := c.store(e); err != nil {
		return err
	}
	if c.Multiprocess {
		return nil
	}
	at := c.now().UnixNano()
	for _, hash := range e.Hashes {
		c.serial++
		c.queue = append(c.queue, announced{hash, c.serial, at})
		c.latest[hash] = c.serial
	}
	c.expire(at)
	return nil
}

// check compares an event with the description: the size of its chunk, and the
// hash of a prompt's first chunk.
func (c *chunkState) check(e *kvevents.Event) string {
	if e.BlockSize != c.ChunkTokens && !(c.PartialChunks && e.BlockSize > 0 && e.BlockSize < c.ChunkTokens) {
		return fmt.Sprintf("LMCache announces chunks of %d tokens, described are %d", e.BlockSize, c.ChunkTokens)
	}
	if c.content != nil || e.HasParent || e.TokenForm != kvevents.TokensPlain || len(e.Hashes) == 0 || len(e.Tokens) != e.BlockSize*len(e.Hashes) {
		return ""
	}
	first := blockhash.Prompt{Tokens: e.Tokens[:e.BlockSize]}
	keys, err := c.domain.hasher.AppendKeys(nil, &first)
	if err != nil || len(keys) == 1 && keys[0] == e.Hashes[0] {
		return ""
	}
	return fmt.Sprintf("LMCache announces chunk %016x, which by %s of %v, %s, is %016x: another algorithm, seed or release",
		e.Hashes[0], c.domain.key.algorithm, c.domain.key.scheme, c.domain.key.seed, keys)
}

func (c *chunkState) holder() radix.Holder {
	return radix.Holder{Worker: c.id, Medium: radix.CPU, Group: radix.NoGroup}
}

func (c *chunkState) store(e *kvevents.Event) error {
	switch {
	case c.content != nil && e.HasParent && e.Parent == 0: // in process: whatever was stored before
		return c.content.unplaced(c.holder(), e.Hashes)
	case c.content != nil:
		return c.content.store(c.holder(), e)
	case e.HasParent:
		return c.domain.index.StoreAfter(c.holder(), e.Parent, e.Hashes)
	}
	return c.domain.index.Store(c.holder(), e.Hashes)
}

func (c *chunkState) remove(hashes []uint64) error {
	if c.content != nil {
		return c.content.table.Remove(c.holder(), hashes)
	}
	return c.domain.index.Remove(c.holder(), hashes)
}

// expire takes out what decayed and what is too much.
func (c *chunkState) expire(now int64) {
	n := 0
	for n < len(c.queue) {
		first := c.queue[n]
		if c.latest[first.hash] == first.serial { // else it was removed, or announced again
			if len(c.latest) <= c.MaxChunks && (c.Decay < 0 || first.at > now-int64(c.Decay)) {
				break
			}
			delete(c.latest, first.hash)
			_ = c.remove([]uint64{first.hash}) // the worker is registered
			c.w.stats.Decayed++
		}
		n++
	}
	c.queue = c.queue[n:]
	if len(c.queue) > 64+2*len(c.latest) { // mostly chunks that were announced again
		c.queue = slices.DeleteFunc(c.queue, func(x announced) bool { return c.latest[x.hash] != x.serial })
	}
	switch {
	case len(c.queue) == 0 || c.Decay < 0:
		c.due.Store(0)
	default:
		c.due.Store(c.queue[0].at + int64(c.Decay))
	}
}

// refresh lets decay what is due, unless events are being applied, which do it too. It is
// called without the worker's mutex.
func (c *chunkState) refresh(now int64) {
	due := c.due.Load()
	if due == 0 || due > now || !c.w.mu.TryLock() {
		return
	}
	defer c.w.mu.Unlock()
	if !c.w.gone {
		c.expire(now)
	}
}

// clear forgets all chunks.
func (c *chunkState) clear() error {
	c.queue, c.latest = nil, map[uint64]uint64{}
	c.due.Store(0)
	if c.content != nil {
		return c.content.table.Clear()
	}
	return c.domain.index.Clear(c.id)
}

func (c *chunkState) reset() error {
	c.wrong.Store(nil)
	if c.content != nil {
		c.queue, c.latest = nil, map[uint64]uint64{}
		c.due.Store(0)
		return c.content.table.Reset()
	}
	return c.clear()
}

// matchChunks fills in what LMCache adds to the local hits of the workers of a domain
// of chunks. A prompt that LMCache hashes in a way that is not known gets nothing.
func (dm *domainMatch) matchChunks(req *Request, m *Match) error {
	d, q := dm.domain, &dm.query
	*q = radix.Query{Workers: q.Workers[:0]}
	dm.at = dm.at[:0]
	var now int64
	for i, w := range m.picked {
		if w.chunks == nil || w.chunks.domain != d || m.Workers[i].Unknown != "" {
			continue
		}
		if len(dm.at) == 0 {
			now = w.chunks.now().UnixNano()
		}
		w.chunks.refresh(now)
		dm.at = append(dm.at, i)
		q.Workers = append(q.Workers, w.chunks.id)
	}
	p := blockhash.Prompt{Tokens: req.Prompt.Tokens, WideTokens: req.Prompt.WideTokens}
	n := p.Len()
	if len(dm.at) == 0 || n == 0 || len(req.Prompt.Items) > 0 || req.Prompt.Embeds != nil {
		return nil
	}
	if d.content != nil {
		if d.content.Start(&dm.keys, &p) != nil {
			return nil
		}
		q.Source = &dm.keys
	} else {
		if d.hasher.Start(&dm.chain, &p) != nil {
			return nil
		}
		q.Source = &dm.chain
	}
	if err := dm.lookUp(m); err != nil {
		return err
	}
	for i, at := range dm.at {
		w, chunks := &m.Workers[at], m.picked[at].chunks
		hit := min(dm.result.Workers[i].Combined*d.key.unit, n)
		if hit == n {
			hit-- // the last token is computed
		}
		w.External = max(hit-w.Usable, 0)
		w.ExternalTiered = w.External
		w.ExternalUpperBound = w.External > 0 && (m.excess[at] || !(chunks.Multiprocess && chunks.w.PlainOnly))
	}
	return nil
}

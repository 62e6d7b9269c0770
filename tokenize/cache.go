package tokenize

import (
	"container/heap"
	"hash/maphash"
	"strings"
	"sync"
)

// CacheOptions are the choices of [Tokenizer.NewCache]. The zero value is
// good for most.
type CacheOptions struct {
	// MaxBytes bounds the memory of all entries, in bytes; 0 means
	// [DefaultCacheBytes]. An entry takes about nine bytes a token.
	MaxBytes int64
	// MinSegmentBytes is the length of the shortest text that is kept;
	// 0 means 64. Shorter ones are encoded faster than they are looked up.
	MinSegmentBytes int
	// Isolated keeps tenants from finding what others had encoded, which
	// they could measure. Otherwise a system prompt that all share is kept
	// once, and counts for the tenant that came first.
	Isolated bool
}

// DefaultCacheBytes is the bound that the zero [CacheOptions] set.
const DefaultCacheBytes = 64 << 20

func (o *CacheOptions) validate() error {
	if o.MaxBytes < 0 || o.MinSegmentBytes < 0 {
		return constError("tokenize: CacheOptions.MaxBytes or MinSegmentBytes is negative")
	}
	return nil
}

// Cache remembers the ids of the texts between special tokens. A
// conversation with one more turn then costs little more than that turn: the
// rest is found, not encoded.
//
// It is exact. A text is cut at a special token only when no other added
// token can begin in front of it and reach into it, which is checked at
// load, and what lies between is then cut, normalized and encoded by itself
// as the library does it. So its ids depend on nothing but that text and
// whether it begins the prompt. Both are the key, and the text is compared,
// not its hash alone.
//
// Made by [Tokenizer.NewCache]; safe for concurrent use; must not be copied.
type Cache struct {
	tokenizer *Tokenizer
	min       int
	isolated  bool
	seed      maphash.Seed
	shards    [cacheShards]cacheShard
}

const (
	cacheShards = 8

	// entryOverhead is what an entry takes beside its text and ids: the
	// entry, its place in the map, both roughly.
	entryOverhead = 160
)

// ErrNoSegments is returned by [Tokenizer.NewCache] when an added token
// looks at its neighbours (lstrip, rstrip, single_word). Then no part of a
// text can be encoded without the rest.
const ErrNoSegments = constError("tokenize: added tokens with lstrip, rstrip or single_word: segments cannot be cached exactly; encode without a cache")

// NewCache returns an empty cache of t, or [ErrNoSegments].
func (t *Tokenizer) NewCache(o CacheOptions) (*Cache, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if !t.made() {
		return nil, ErrTokenizer
	}
	if t.neighbours {
		return nil, ErrNoSegments
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultCacheBytes
	}
	if o.MinSegmentBytes == 0 {
		o.MinSegmentBytes = 64
	}
	c := &Cache{tokenizer: t, min: o.MinSegmentBytes, isolated: o.Isolated, seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].max = o.MaxBytes / cacheShards
		c.shards[i].entries = make(map[cacheKey]*cacheEntry)
		c.shards[i].tenants = make(map[string]*tenant)
	}
	return c, nil
}

// AppendIDs gives what [Tokenizer.AppendIDs] gives. What it has to encode it
// keeps, at the expense of tenant, any name of who sends the request.
//
// When room is short, the tenant with the most bytes loses what it has not
// used for longest. So nobody who keeps within the bound divided by the
// number of tenants loses anything to the others. Texts are spread over
// eight parts by their hash, and this holds in each: for few long texts it
// holds roughly.
//
// It doesn't allocate for what it finds.
func (c *Cache) AppendIDs(dst []uint32, text string, o EncodeOptions, tenant string) ([]uint32, error) {
	if c == nil || c.tokenizer == nil {
		return dst, ErrTokenizer
	}
	t := c.tokenizer
	s := t.get()
	s.segments, s.tenant = c, tenant
	dst, err := t.appendIDs(dst, text, o, s)
	s.segments, s.tenant = nil, ""
	t.put(s)
	return dst, err
}

// CacheStats are counts since the cache was made, and its present size.
type CacheStats struct {
	Hits, Misses, Evictions uint64 // of texts long enough to be kept
	Entries                 int
	Bytes                   int64
	Tenants                 int // of all parts: a tenant may count up to eight times
}

// Stats adds up the parts of the cache, each at its own instant.
func (c *Cache) Stats() CacheStats {
	var sum CacheStats
	if c == nil {
		return sum
	}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		sum.Hits += s.hits
		sum.Misses += s.misses
		sum.Evictions += s.evictions
		sum.Entries += len(s.entries)
		sum.Bytes += s.bytes
		sum.Tenants += len(s.tenants)
		s.mu.Unlock()
	}
	return sum
}

type cacheKey struct {
	hash   uint64
	first  bool
	tenant string // empty unless isolated
}

// cacheEntry is immutable but for its links.
type cacheEntry struct {
	key          cacheKey
	text         string
	ids          []uint32
	owner        *tenant
	older, newer *cacheEntry
}

func (e *cacheEntry) size() int64 { return int64(len(e.text)+4*len(e.ids)) + entryOverhead }

// tenant holds the entries that one tenant made, by last use.
type tenant struct {
	name           string
	bytes          int64
	place          int // in the heap
	oldest, newest *cacheEntry
}

// cacheShard is one part of the cache, with its share of the bound.
type cacheShard struct {
	mu                      sync.Mutex
	max, bytes              int64
	entries                 map[cacheKey]*cacheEntry
	tenants                 map[string]*tenant
	largest                 tenantHeap
	hits, misses, evictions uint64
}

// appendSegment appends the ids of a segment, found or encoded and kept.
func (c *Cache) appendSegment(dst []uint32, s *state, text string, at place) []uint32 {
	key := cacheKey{hash: maphash.String(c.seed, text), first: at == atStart && s.t.pre.prefix == prefixFirst}
	if c.isolated {
		key.tenant = s.tenant
	}
	shard := &c.shards[key.hash%cacheShards]
	if e := shard.get(key); e != nil && e.text == text {
		return append(dst, e.ids...)
	}
	from := len(dst)
	dst = s.text(dst, text, at)
	shard.add(key, text, dst[from:], s.tenant)
	return dst
}

func (s *cacheShard) get(key cacheKey) *cacheEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e == nil {
		s.misses++
		return nil
	}
	s.hits++
	if e.owner.newest != e {
		e.owner.unlink(e)
		e.owner.link(e)
	}
	return e
}

func (s *cacheShard) add(key cacheKey, text string, ids []uint32, name string) {
	e := &cacheEntry{key: key, text: text, ids: ids}
	if e.size() > s.max/2 {
		return // one text may not push out all others
	}
	e.text, e.ids = strings.Clone(text), append(make([]uint32, 0, len(ids)), ids...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.entries[key]; before != nil {
		s.remove(before) // put there meanwhile, or another text with this hash
	}
	owner := s.tenants[name]
	if owner == nil {
		owner = &tenant{name: strings.Clone(name)}
		s.tenants[owner.name] = owner
		heap.Push(&s.largest, owner)
	}
	if key.tenant != "" {
		key.tenant = owner.name // not the caller's memory
		e.key = key
	}
	e.owner = owner
	s.entries[key] = e
	owner.link(e)
	s.grow(owner, e.size())
	for s.bytes > s.max {
		s.evictions++
		s.remove(s.largest[0].oldest)
	}
}

func (s *cacheShard) remove(e *cacheEntry) {
	delete(s.entries, e.key)
	e.owner.unlink(e)
	s.grow(e.owner, -e.size())
	if e.owner.oldest == nil {
		heap.Remove(&s.largest, e.owner.place)
		delete(s.tenants, e.owner.name)
	}
}

func (s *cacheShard) grow(owner *tenant, bytes int64) {
	s.bytes += bytes
	owner.bytes += bytes
	heap.Fix(&s.largest, owner.place)
}

// link makes e the one used last.
func (t *tenant) link(e *cacheEntry) {
	e.older, e.newer = t.newest, nil
	if t.newest != nil {
		t.newest.newer = e
	} else {
		t.oldest = e
	}
	t.newest = e
}

func (t *tenant) unlink(e *cacheEntry) {
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		t.oldest = e.newer
	}
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		t.newest = e.older
	}
	e.older, e.newer = nil, nil
}

// tenantHeap has the tenant with the most bytes first.
type tenantHeap []*tenant

func (h tenantHeap) Len() int           { return len(h) }
func (h tenantHeap) Less(i, j int) bool { return h[i].bytes > h[j].bytes }
func (h tenantHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *tenantHeap) Push(x any) {
	t := x.(*tenant)
	t.place = len(*h)
	*h = append(*h, t)
}

func (h *tenantHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	*h = (*h)[:last]
	return t
}

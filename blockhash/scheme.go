package blockhash

import (
	"fmt"
	"slices"
	"strings"
)

// Scheme is one era of one engine: how it turns a block into a hash. It is a
// small comparable value, usable as a map key. The zero value is no scheme and
// refused by [New]; get one from [SchemeFor] or [Schemes].
type Scheme struct {
	id      schemeID
	assumed bool
}

type schemeID uint8

// One constant per era, named by its first release. An era is never edited
// when an engine changes: a new one is added, vectors first.
const (
	schemeNone schemeID = iota
	vllm0102
	vllm0112
	vllm0130
	vllm0170
	vllm0190
	vllm0290
	vllm0310
	vllm0330
	sglang046
	sglang048
	sglang056
	sglang0518
	sglang0522
	sglang0523
	lmcache035
	lmcache0315
	lmcache047
	lmcacheServer
	dynamo
	dynamo160
	mooncake
	tensorrt
	numSchemes
)

// era is what is known of a scheme. For vLLM see vllm/v1/core/kv_cache_utils.py:
// init_none_hash, generate_block_hash_extra_keys, hash_block_tokens.
type era struct {
	engine string
	since  version // first release
	last   version // last release that was run or read
	extras string  // for people: what this era adds

	xxhash    bool // offers xxhash and xxhash_cbor
	loraID    bool // LoRA by integer id, else by name
	embeds    embedsRule
	mmOffset  bool // items with their offset relative to the block
	fixedRoot bool // unset seed means fn("vllm-none-hash") for SHA-256
	tagged    bool // extra keys are tagged tuples, LoRA has its path
	lookahead bool // can hash tokens past the block
	eventKeys bool // events carry extra keys

	family family
	gap    bool // releases between last and the next era's first are not known

	// SGLang only.
	sglang        sglangRule
	saltSeeds     bool // the salt seeds the chain
	dynamoEvents  bool // has the event format "dynamo"
	namespaceLoRA bool // event values of LoRA prompts are mapped with the extra key
	eventLoRA     bool // events name the adapter
	// LMCache only.
	folded bool // prefix is the first 8 bytes of the digest as an integer
	// Dynamo only.
	seqNamespace bool // adapter and salt change the seed of tokens

	documents bool // events and hit rules are known from documents only
}

type embedsRule uint8

const (
	embedsIgnored embedsRule = iota
	embedsRaw
	embedsDigest
)

// eras is indexed by schemeID. Read-only.
var eras = [numSchemes]era{
	vllm0102: {engine: "vllm", since: version{0, 10, 2}, last: version{0, 11, 0},
		extras: "LoRA id, item identifiers", loraID: true},
	vllm0112: {engine: "vllm", since: version{0, 11, 1}, last: version{0, 12, 0},
		extras: "LoRA name, raw prompt embeds", embeds: embedsRaw},
	vllm0130: {engine: "vllm", since: version{0, 13, 0}, last: version{0, 16, 0},
		extras: "xxhash algorithms", embeds: embedsRaw, xxhash: true},
	vllm0170: {engine: "vllm", since: version{0, 17, 0}, last: version{0, 18, 1},
		extras: "digest of prompt embeds, extra keys in events", embeds: embedsDigest, xxhash: true, eventKeys: true},
	vllm0190: {engine: "vllm", since: version{0, 19, 0}, last: version{0, 28, 0},
		extras: "items with relative offset", embeds: embedsDigest, xxhash: true, eventKeys: true, mmOffset: true},
	vllm0290: {engine: "vllm", since: version{0, 29, 0}, last: version{0, 30, 0},
		extras: "fixed root when the seed is unset", embeds: embedsDigest, xxhash: true, eventKeys: true, mmOffset: true,
		fixedRoot: true},
	vllm0310: {engine: "vllm", since: version{0, 31, 0}, last: version{0, 32, 0},
		extras: "tagged extra keys, LoRA path", embeds: embedsDigest, xxhash: true, eventKeys: true, mmOffset: true,
		fixedRoot: true, tagged: true},
	vllm0330: {engine: "vllm", since: version{0, 33, 0}, last: version{0, 33, 0},
		extras: "lookahead tokens", embeds: embedsDigest, xxhash: true, eventKeys: true, mmOffset: true,
		fixedRoot: true, tagged: true, lookahead: true},

	sglang046: {engine: "sglang", family: familySGLang, since: version{0, 4, 6}, last: version{0, 4, 7},
		extras: "hash of a tree node's tuple", sglang: sglangNode},
	sglang048: {engine: "sglang", family: familySGLang, since: version{0, 4, 8}, last: version{0, 5, 5},
		extras: "hash of a page's tuple, not chained", sglang: sglangPage},
	sglang056: {engine: "sglang", family: familySGLang, since: version{0, 5, 6}, last: version{0, 5, 17},
		extras: "SHA-256 chained over pages", sglang: sglangChain},
	sglang0518: {engine: "sglang", family: familySGLang, since: version{0, 5, 18}, last: version{0, 5, 21},
		extras: "the salt seeds the chain", sglang: sglangChain, saltSeeds: true},
	sglang0522: {engine: "sglang", family: familySGLang, since: version{0, 5, 22}, last: version{0, 5, 22},
		extras: "event format dynamo", sglang: sglangChain, saltSeeds: true, dynamoEvents: true, eventLoRA: true},
	sglang0523: {engine: "sglang", family: familySGLang, since: version{0, 5, 23}, last: version{0, 5, 23},
		extras: "LoRA prompts have a namespace", sglang: sglangChain, saltSeeds: true, dynamoEvents: true, eventLoRA: true,
		namespaceLoRA: true},

	lmcache035: {engine: "lmcache", family: familyLMCache, since: version{0, 3, 5}, last: version{0, 3, 9},
		extras: "digests as prefix"},
	lmcache0315: {engine: "lmcache", family: familyLMCache, since: version{0, 3, 10}, last: version{0, 3, 15}, gap: true,
		extras: "vLLM's algorithms", xxhash: true},
	lmcache047: {engine: "lmcache", family: familyLMCache, since: version{0, 4, 7}, last: version{0, 5, 6},
		extras: "first 8 bytes as prefix", xxhash: true, folded: true},
	lmcacheServer: {engine: "lmcache-server", family: familyServer, since: version{0, 3, 15}, last: version{0, 5, 6},
		extras: "digests as prefix, BLAKE3", xxhash: true},

	dynamo: {engine: "dynamo", family: familySeq, since: version{0, 1, 0}, last: version{1, 5, 0},
		extras: "XXH3-64 of tokens, chained, seed 1337", documents: true},
	dynamo160: {engine: "dynamo", family: familySeq, since: version{1, 6, 0}, last: version{1, 6, 1},
		extras: "adapter and salt in the seed", seqNamespace: true, documents: true},
	mooncake: {engine: "mooncake", family: familySeq, since: version{0, 1, 0}, last: version{0, 3, 13},
		extras: "RFC 1527: XXH3-64 of tokens, chained", documents: true},
	tensorrt: {engine: "tensorrt-llm", family: familyOpaque, since: version{0, 0, 0}, last: version{99, 0, 0},
		extras: "opaque hashes: content keys only", documents: true},
}

func (s Scheme) era() *era {
	if s.id >= numSchemes {
		s.id = schemeNone
	}
	return &eras[s.id]
}

// IsZero reports whether s is the zero Scheme.
func (s Scheme) IsZero() bool { return s.id == schemeNone }

// Engine returns the engine's name in lower case, "" for the zero Scheme.
func (s Scheme) Engine() string { return s.era().engine }

// Since returns the first release of the era, such as "0.31.0".
func (s Scheme) Since() string {
	if s.IsZero() {
		return ""
	}
	return s.era().since.String()
}

// Through returns the last release for which the era was verified.
func (s Scheme) Through() string {
	if s.IsZero() {
		return ""
	}
	return s.era().last.String()
}

// Summary says in a few words what the era added.
func (s Scheme) Summary() string { return s.era().extras }

// Assumed reports that the version asked for was not among those verified: it
// is newer than every release known here, or a development build. Treat its
// hashes as a hypothesis and check them against events.
func (s Scheme) Assumed() bool { return s.assumed }

// EventExtraKeys reports whether BlockStored events of the era carry the extra
// keys of blocks, which [Content] keys of salted, LoRA and multimodal prompts
// need.
func (s Scheme) EventExtraKeys() bool { return s.era().eventKeys }

// LoRAPath reports whether the path of a prompt's adapter is hashed (vLLM from
// 0.31 on). No event carries it: whoever hashes prompts must be told.
func (s Scheme) LoRAPath() bool { return s.era().tagged }

// Namespaces reports whether adapter and salt are in the hashes that a relay has of
// each block's tokens (Dynamo from 1.6): before, blocks of both look like plain ones.
func (s Scheme) Namespaces() bool { return s.era().seqNamespace }

// Chained reports whether a hash names the whole prefix up to its block. In SGLang
// 0.4.8 to 0.5.5 it names a page wherever it lies, so that pages can be taken for
// others that are alike.
func (s Scheme) Chained() bool {
	e := s.era()
	return e.family != familySGLang || e.sglang != sglangPage
}

// AdapterNamespaces reports whether hashes of adapters' prompts depend on an extra key
// that only the engine knows (SGLang from 0.5.23; with Options.DynamoEvents from
// 0.5.22): who does not, tells such prompts by content.
func (s Scheme) AdapterNamespaces() bool { return s.era().namespaceLoRA }

// FromDocuments reports whether the engine's events and what it does with blocks
// are known from its documents and published sources only: nothing was compared
// with the engine itself.
func (s Scheme) FromDocuments() bool { return s.era().documents }

// String returns engine and first release, such as "vllm-0.31.0", with
// " (assumed)" where that is so.
func (s Scheme) String() string {
	switch {
	case s.IsZero():
		return "no scheme"
	case s.assumed:
		return s.Engine() + "-" + s.Since() + " (assumed)"
	}
	return s.Engine() + "-" + s.Since()
}

// Schemes returns every known scheme, engine by engine, oldest first.
func Schemes() []Scheme {
	list := make([]Scheme, 0, numSchemes)
	for id := range numSchemes {
		if id != schemeNone {
			list = append(list, Scheme{id: id})
		}
	}
	return list
}

// SchemeFor returns the scheme of an engine's release. The engine's name is
// taken in any case. Versions are as the engine prints them: "0.31.0",
// "v0.31.0", "0.31.0rc1", "0.20.2+cpu". A version newer than all that are
// known gets the newest scheme, and a development build or release candidate
// that of its number; both are [Scheme.Assumed]. An older one than the oldest
// known, one whose second number is far beyond the newest (SGLang "0.32.0" is
// another engine's), an unknown engine or an unreadable version gives an error
// that wraps [ErrScheme].
func SchemeFor(engine, release string) (Scheme, error) {
	name := strings.ToLower(engine)
	var ids []schemeID
	for id := range numSchemes {
		if id != schemeNone && eras[id].engine == name {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return Scheme{}, fmt.Errorf("%w: engine %.64q: known engines are %s", ErrScheme, engine, quoteList(engineNames()))
	}
	v, pre, ok := parseVersion(release)
	if !ok {
		return Scheme{}, fmt.Errorf("%w: version %.64q of %s cannot be read: want a form like \"0.31.0\"", ErrScheme, release, name)
	}
	if v.less(eras[ids[0]].since) {
		return Scheme{}, fmt.Errorf("%w: %s %s is older than %s, the oldest release known here",
			ErrScheme, name, release, eras[ids[0]].since)
	}
	found := ids[0]
	for _, id := range ids {
		if !v.less(eras[id].since) {
			found = id
		}
	}
	if e := &eras[found]; e.gap && e.last.less(v) {
		return Scheme{}, fmt.Errorf("%w: %s changed between %s and the next known release; %s is between them",
			ErrScheme, name, e.last, release)
	}
	newest := eras[ids[len(ids)-1]].last
	if v[0] == newest[0] && v[1] > max(3*newest[1], newest[1]+10) {
		return Scheme{}, fmt.Errorf("%w: %s %s is far from %s's numbering, whose newest release known here is %s: is it another engine's?",
			ErrScheme, name, release, name, newest)
	}
	newer := newest.less(v)
	return Scheme{id: found, assumed: pre || newer}, nil
}

func engineNames() []string {
	var names []string
	for _, e := range eras[1:] {
		if !slices.Contains(names, e.engine) {
			names = append(names, e.engine)
		}
	}
	return names
}

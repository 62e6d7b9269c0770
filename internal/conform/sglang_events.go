package conform

import (
	"fmt"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/release"
	"github.com/kvatlas/kvatlas/kvevents"
)

// sglangEvents judges what a cache of SGLang announces from its first event on: every
// page's hash is the one of its prefix, every parent and every removal is of a page
// that was announced.
type sglangEvents struct {
	header sglangHeader
	scheme blockhash.Scheme
	known  map[uint64]sglangPrefix
	// unjudged counts pages whose hash the events do not determine.
	unjudged int
}

// sglangPrefix is what a hash stands for.
type sglangPrefix struct {
	tokens []uint32
	salt   string
	opaque bool // not determined, nor what follows it
}

func newSGLangEvents(h sglangHeader) (*sglangEvents, error) {
	scheme, err := blockhash.SchemeFor(h.Engine, h.Version)
	return &sglangEvents{header: h, scheme: scheme, known: map[uint64]sglangPrefix{}}, err
}

// note says how many pages were not judged.
func (c *sglangEvents) note(res *Result) {
	if c.unjudged > 0 {
		res.note("%d pages whose hash depends on what no event tells (an adapter's id, a namespace): not judged", c.unjudged)
	}
}

// nodes tells the eras that announce nodes of the tree instead of pages.
func (c *sglangEvents) nodes() bool { return c.scheme.Through() == "0.4.7" }

// silent tells the eras in which a look-up announces nothing: a chained hash, but for
// 0.5.6, which removes what a look-up splits.
func (c *sglangEvents) silent() bool {
	return c.header.Hash == "sha256" && !splitsSilently(c.header.Version) && c.header.HostTier == nil // copies end by themselves
}

// splitsSilently tells SGLang 0.5.6 and its post releases, which remove the pages of a node
// that they split and do not announce them again.
func splitsSilently(version string) bool {
	return release.Compare(version, "0.5.6") >= 0 && release.Compare(version, "0.5.7") < 0
}

// nodeRoot is hash(()), the parent of first-level nodes.
const nodeRoot = 5740354900026072187

// judge returns what is wrong with an event, "" if nothing.
func (c *sglangEvents) judge(e *kvevents.Event) string {
	switch medium := string(e.Medium); medium {
	case "", "GPU", "CPU_PINNED":
	default:
		return fmt.Sprintf("medium %q", medium)
	}
	if e.HasLoRAID || e.HasGroup {
		return "a LoRA id or a group"
	}
	switch e.Kind {
	case kvevents.BlockRemoved:
		for _, h := range e.Hashes {
			if _, ok := c.known[h]; !ok {
				return fmt.Sprintf("removes %d, which was never announced", int64(h))
			}
		}
	case kvevents.BlockStored:
		return c.stored(e)
	}
	return ""
}

func (c *sglangEvents) stored(e *kvevents.Event) string {
	per := e.BlockSize
	if e.TokenForm == kvevents.TokensPairs {
		per *= 2
	}
	if len(e.Hashes) == 0 || per <= 0 || len(e.Tokens) != per*len(e.Hashes) || !c.nodes() && e.BlockSize != c.header.PageSize {
		return fmt.Sprintf("%d hashes of %d tokens each, with %d tokens", len(e.Hashes), e.BlockSize, len(e.Tokens))
	}
	for i := 1; e.TokenForm == kvevents.TokensPairs && i+1 < len(e.Tokens); i += 2 {
		if e.Tokens[i] != e.Tokens[i+1] {
			return fmt.Sprintf("pair %d ends with %d, the next begins with %d", i/2, e.Tokens[i], e.Tokens[i+1])
		}
	}
	p := sglangPrefix{salt: string(e.CacheSalt), opaque: c.header.Dynamo || len(e.LoRAName) > 0}
	if e.HasParent && !(c.nodes() && e.Parent == nodeRoot) {
		parent, ok := c.known[e.Parent]
		if !ok {
			return fmt.Sprintf("its parent %d was never announced", int64(e.Parent))
		}
		if parent.salt != p.salt {
			return fmt.Sprintf("salt %q after %q", p.salt, parent.salt)
		}
		p.opaque = p.opaque || parent.opaque
		p.tokens = parent.tokens
	}
	at := len(p.tokens)
	p.tokens = appendPairs(p.tokens[:at:at], e)
	keys, err := c.keys(p, e)
	switch {
	case err != nil:
		return err.Error()
	case keys == nil:
		c.unjudged += len(e.Hashes)
		p.opaque = true
	case len(keys) < len(e.Hashes):
		return fmt.Sprintf("%d hashes of a prefix of %d", len(e.Hashes), len(keys))
	}
	for i, h := range e.Hashes {
		if keys != nil && keys[len(keys)-len(e.Hashes)+i] != h {
			return fmt.Sprintf("page %d of the event is %d, computed is %d", i, int64(h), int64(keys[len(keys)-len(e.Hashes)+i]))
		}
		end := len(p.tokens) - (len(e.Hashes)-1-i)*e.BlockSize
		c.known[h] = sglangPrefix{tokens: p.tokens[:end:end], salt: p.salt, opaque: p.opaque}
	}
	return ""
}

// appendPairs appends the tokens of an event: of pairs the first ones, and the second of
// the last, which the next event begins with.
func appendPairs(dst []uint32, e *kvevents.Event) []uint32 {
	if e.TokenForm != kvevents.TokensPairs {
		return append(dst, e.Tokens...)
	}
	if len(dst) > 0 {
		dst = dst[:len(dst)-1]
	}
	for i := 0; i < len(e.Tokens); i += 2 {
		dst = append(dst, e.Tokens[i])
	}
	return append(dst, e.Tokens[len(e.Tokens)-1])
}

// keys hashes a prefix; nil where what it depends on is in no event.
func (c *sglangEvents) keys(p sglangPrefix, e *kvevents.Event) ([]uint64, error) {
	if p.opaque {
		return nil, nil
	}
	o := blockhash.Options{Scheme: c.scheme, BlockSize: c.header.PageSize, EAGLE: c.header.EAGLE}
	if c.nodes() { // the node's own tokens, whatever is before it
		p.tokens, o.BlockSize = e.Tokens, len(e.Tokens)
	}
	h, err := blockhash.New(o)
	if err != nil {
		return nil, err
	}
	return h.AppendKeys(nil, &blockhash.Prompt{Tokens: p.tokens, CacheSalt: p.salt})
}

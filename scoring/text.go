package scoring

import (
	"cmp"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/zeebo/xxh3"
)

// AppendTextKeys cuts a text every chunk characters and appends a key for each
// piece, the shorter last one included, that names it and everything before it.
// With 128 it is the grain of production-stack's trie of prompts. It does not
// allocate when dst has capacity. A chunk below 1 counts as 1; invalid UTF-8
// counts a byte as a character.
func AppendTextKeys(dst []uint64, text string, chunk int) []uint64 {
	parent := uint64(0)
	for len(text) > 0 {
		end := runes(text, max(1, chunk))
		parent = xxh3.HashStringSeed(text[:end], parent)
		dst = append(dst, parent)
		text = text[end:]
	}
	return dst
}

// runes returns the length in bytes of the first n characters.
func runes(s string, n int) int {
	at := 0
	for ; n > 0 && at < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
}

// TextTreeOptions are the options of [NewTextTree]. The zero value is usable.
type TextTreeOptions struct {
	// MaxChars is the number of characters remembered for each worker; the
	// least recently used leaves go first. 0 means 2^24, as in the SGLang
	// router.
	MaxChars int
	// Now is the clock, for tests and simulations; nil means [time.Now].
	Now func() time.Time
}

// TextTree remembers which prompt texts were sent where, in one radix tree whose
// nodes know the workers that got them: the memory of SGLang's and Ray's text
// modes, without tokens or events. It is safe for concurrent use behind one lock.
//
// A match is measured in characters: use a [Request] with Blocks set to what
// Match returns and BlockSize 0.
//
// Source: sgl-router src/policies/tree.rs, September 2026. Theirs evicts from
// time to time in the background, ours as soon as a worker is over its limit.
type TextTree struct {
	o     TextTreeOptions
	mu    sync.Mutex
	root  textNode
	chars map[WorkerID]int
}

// textNode is an edge and the node at its end.
type textNode struct {
	text     string
	chars    int
	workers  map[WorkerID]time.Time // when it last was sent there
	children map[rune]*textNode
}

// NewTextTree returns an empty tree.
func NewTextTree(o TextTreeOptions) (*TextTree, error) {
	if o.MaxChars < 0 {
		return nil, optionErrorf("MaxChars", "is %d; at least 1 is needed (0 means %d)", o.MaxChars, 1<<24)
	}
	if o.MaxChars == 0 {
		o.MaxChars = 1 << 24
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &TextTree{o: o, chars: map[WorkerID]int{}}, nil
}

// Match sets the match of every candidate to the characters of the longest prefix
// of the text that was sent there, as GPU blocks, and [Load.CacheSize] to the
// characters remembered. It returns the length of the text in characters.
func (t *TextTree) Match(text string, candidates []Candidate) int {
	if !t.lock() {
		unmatched(candidates)
		return utf8.RuneCountInString(text)
	}
	defer t.mu.Unlock()
	for i := range candidates {
		candidates[i].Match = Match{}
		candidates[i].Load.CacheSize = Known(float64(t.chars[candidates[i].ID]))
	}
	depth, node, rest := 0, &t.root, text
	for len(rest) > 0 {
		first := head(rest)
		child := node.children[first]
		if child == nil {
			break
		}
		n, chars := common(child.text, rest)
		depth += chars
		for i := range candidates {
			if _, ok := child.workers[candidates[i].ID]; ok {
				m := &candidates[i].Match
				m.Blocks[GPU], m.Usable, m.Score = int32(depth), int32(depth), float64(depth)
			}
		}
		if n < len(child.text) {
			break
		}
		node, rest = child, rest[n:]
	}
	return utf8.RuneCountInString(text)
}

// Sent remembers that a text went to a worker.
func (t *TextTree) Sent(w WorkerID, text string) {
	if !t.lock() {
		return
	}
	defer t.mu.Unlock()
	now := t.o.Now()
	if end := runes(text, t.o.MaxChars); end < len(text) {
		text = text[:end]
	}
	node := &t.root
	for len(text) > 0 {
		first := head(text)
		child := node.children[first]
		if child == nil {
			child = &textNode{text: text, chars: utf8.RuneCountInString(text)}
			if node.children == nil {
				node.children = map[rune]*textNode{}
			}
			node.children[first] = child
		}
		n, chars := common(child.text, text)
		if n < len(child.text) {
			child = split(node, first, child, n, chars)
		}
		if _, ok := child.workers[w]; !ok {
			t.chars[w] += child.chars
			if child.workers == nil {
				child.workers = map[WorkerID]time.Time{}
			}
		}
		child.workers[w] = now
		node, text = child, text[n:]
	}
	if t.chars[w] > t.o.MaxChars {
		t.evict(w)
	}
}

// Remove forgets a worker.
func (t *TextTree) Remove(w WorkerID) {
	if !t.lock() {
		return
	}
	defer t.mu.Unlock()
	t.remove(w)
	delete(t.chars, w)
}

// lock reports whether there is a tree, and locks it.
func (t *TextTree) lock() bool {
	if t == nil || t.o.Now == nil {
		return false
	}
	t.mu.Lock()
	return true
}

// Chars returns the number of characters remembered for a worker.
func (t *TextTree) Chars(w WorkerID) int {
	if !t.lock() {
		return 0
	}
	defer t.mu.Unlock()
	return t.chars[w]
}

// head returns a key for the first character of a text. Bytes that are not UTF-8
// are characters of their own and must not share one key.
func head(s string) rune {
	r, size := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && size == 1 {
		return utf8.MaxRune + 1 + rune(s[0])
	}
	return r
}

// common returns the length of the common prefix in bytes, whole characters
// only, and in characters.
func common(a, b string) (n, chars int) {
	for n < len(a) && n < len(b) {
		_, size := utf8.DecodeRuneInString(a[n:])
		if n+size > len(b) || a[n:n+size] != b[n:n+size] {
			break
		}
		n, chars = n+size, chars+1
	}
	return n, chars
}

// split cuts a node in two after n bytes and returns the upper half.
func split(parent *textNode, first rune, child *textNode, n, chars int) *textNode {
	upper := &textNode{text: child.text[:n], chars: chars, workers: make(map[WorkerID]time.Time, len(child.workers))}
	for w, at := range child.workers {
		upper.workers[w] = at
	}
	child.text, child.chars = child.text[n:], child.chars-chars
	upper.children = map[rune]*textNode{head(child.text): child}
	parent.children[first] = upper
	return upper
}

// textLeaf is a node below which a worker has nothing.
type textLeaf struct {
	parent, node *textNode
	at           time.Time
}

// evict forgets the worker's least recently used leaves until an eighth of its
// room is free, so that a walk of the tree pays for many evictions. A walk uses a
// list, not recursion: prompts decide how deep the tree is.
func (t *TextTree) evict(w WorkerID) {
	for t.chars[w] > t.o.MaxChars-t.o.MaxChars/8 {
		var leaves []textLeaf
		stack := []*textNode{&t.root}
		for len(stack) > 0 {
			n := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, c := range n.children {
				at, ok := c.workers[w]
				if !ok {
					continue
				}
				if c.leaf(w) {
					leaves = append(leaves, textLeaf{n, c, at})
				} else {
					stack = append(stack, c)
				}
			}
		}
		slices.SortFunc(leaves, func(a, b textLeaf) int {
			return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.node.text, b.node.text))
		})
		for _, l := range leaves {
			if t.chars[w] <= t.o.MaxChars-t.o.MaxChars/8 {
				return
			}
			t.chars[w] -= l.node.chars
			l.parent.forget(l.node, w)
		}
		if len(leaves) == 0 {
			return
		}
	}
}

func (n *textNode) leaf(w WorkerID) bool {
	for _, c := range n.children {
		if _, ok := c.workers[w]; ok {
			return false
		}
	}
	return true
}

// forget takes a worker from a child, and the child away when it was the last: a
// worker below a node is always also at the node, so nothing else hangs there.
func (n *textNode) forget(c *textNode, w WorkerID) {
	delete(c.workers, w)
	if len(c.workers) == 0 {
		delete(n.children, head(c.text))
	}
}

func (t *TextTree) remove(w WorkerID) {
	stack := []*textNode{&t.root}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, c := range n.children {
			if _, ok := c.workers[w]; ok {
				stack = append(stack, c)
				n.forget(c, w)
			}
		}
	}
}

package kvatlas

import (
	"slices"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/radix"
)

// SGLang before 0.4.8 announces whole nodes of its radix tree: one event a node, of
// any number of pages, under CPython's hash of the node's own tokens, which says
// nothing of where the node lies. Only its parent's hash does. So each node's pages
// are given content keys that go on from its parent's, and a node is remembered to
// take them out again.
//
// When the engine splits a node it says Removed(X), Stored(A), Stored(B after A) with
// A+B = X; children of X keep their place, since content keys name whole prefixes.

// nodeRoot is hash(()): the parent of first-level nodes.
const nodeRoot = 5740354900026072187

// nodeState is the tree of such a worker; its owner is the worker, whose mutex is
// held in every call.
type nodeState struct {
	w     *worker
	index *radix.Index
	keys  *blockhash.Content
	nodes map[uint64][]node // by hash: equal tokens at different places share one
}

type node struct {
	tokens []uint32
	keys   []uint64 // of its pages; nil if its place is not known
}

func newNodeState(p *place, w *worker) *nodeState {
	return &nodeState{w: w, index: p.domain.index, keys: p.domain.content, nodes: map[uint64][]node{}}
}

// store enters a node. One whose parent is unknown, or is one of several of
// that hash at different places, matches nothing.
func (n *nodeState) store(h radix.Holder, e *kvevents.Event) error {
	if len(e.Hashes) != 1 || e.TokenForm != kvevents.TokensPlain {
		n.w.stats.Unplaced += uint64(len(e.Hashes))
		return nil
	}
	x := node{tokens: slices.Clone(e.Tokens)}
	if parent, ok := n.end(e); ok {
		span := blockhash.Span{Parent: parent, Tokens: x.tokens[:len(x.tokens)/n.keys.BlockSize()*n.keys.BlockSize()]}
		if keys, err := n.keys.AppendEventKeys(nil, &span); err == nil {
			x.keys = keys
		}
	}
	if x.keys == nil {
		n.w.stats.Unplaced++
	}
	n.nodes[e.Hashes[0]] = append(n.nodes[e.Hashes[0]], x)
	return n.index.Store(h, x.keys)
}

// end returns the content key that a node's children go on from.
func (n *nodeState) end(e *kvevents.Event) (key uint64, ok bool) {
	if !e.HasParent || e.Parent == nodeRoot {
		return blockhash.ContentRoot, true
	}
	for i, x := range n.nodes[e.Parent] {
		if len(x.keys) == 0 || i > 0 && x.keys[len(x.keys)-1] != key {
			return 0, false
		}
		key, ok = x.keys[len(x.keys)-1], true
	}
	return key, ok
}

// remove takes nodes out. Among several of one hash it is the one that the events
// after it split; where nothing tells, none of them counts any more.
func (n *nodeState) remove(h radix.Holder, e *kvevents.Event, after []kvevents.Event) error {
	for _, hash := range e.Hashes {
		all := n.nodes[hash]
		if len(all) == 0 {
			continue
		}
		at := n.split(all, after)
		if at < 0 {
			at = 0
			for i := range all {
				if !slices.Equal(all[i].keys, all[0].keys) {
					n.withdraw(h, all)
					break
				}
			}
		}
		if err := n.index.Remove(h, all[at].keys); err != nil {
			return err
		}
		if all = slices.Delete(all, at, at+1); len(all) == 0 {
			delete(n.nodes, hash)
		} else {
			n.nodes[hash] = all
		}
	}
	return nil
}

// split finds the node that the next two events are the halves of, -1 if they are
// not those of one.
func (n *nodeState) split(all []node, after []kvevents.Event) int {
	if len(after) < 2 {
		return -1
	}
	a, b := &after[0], &after[1]
	if a.Kind != kvevents.BlockStored || b.Kind != kvevents.BlockStored || len(a.Hashes) != 1 || !b.HasParent || b.Parent != a.Hashes[0] {
		return -1
	}
	parent, ok := n.end(a)
	if !ok {
		return -1
	}
	unit := n.keys.BlockSize()
	return slices.IndexFunc(all, func(x node) bool {
		if len(x.tokens) != len(a.Tokens)+len(b.Tokens) || !slices.Equal(x.tokens[:len(a.Tokens)], a.Tokens) ||
			!slices.Equal(x.tokens[len(a.Tokens):], b.Tokens) || len(x.keys) == 0 {
			return false
		}
		first, err := n.keys.AppendEventKeys(nil, &blockhash.Span{Parent: parent, Tokens: x.tokens[:unit]})
		return err == nil && first[0] == x.keys[0]
	})
}

// withdraw hides nodes whose places got mixed up.
func (n *nodeState) withdraw(h radix.Holder, all []node) {
	for i := range all {
		_ = n.index.Remove(h, all[i].keys) // the holder was stored to
		all[i].keys = nil
		n.w.stats.Unplaced++
	}
}

func (n *nodeState) clear() { clear(n.nodes) }

package tokenize

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kvatlas/kvatlas/tokenize/internal/unidata"
)

// addedToken is one entry of added_tokens.
type addedToken struct {
	content                                         string
	id                                              uint32
	singleWord, lstrip, rstrip, normalized, special bool
}

// matcher finds the leftmost-longest added token in a text, as the library's
// Aho-Corasick automaton does. It is a byte trie; the zero value finds
// nothing.
type matcher struct {
	tokens []addedToken // by the number in node.token
	nodes  []node
	edges  []edge
	first  [256]uint32 // node after the first byte, 0 for none
	firsts []byte      // the first bytes when there are few, else nil
}

// fewFirsts is the number of first bytes up to which each is looked for by
// itself, in windows of searchWindow bytes.
const (
	fewFirsts    = 4
	searchWindow = 512
)

type node struct {
	token      int32 // index in tokens, -1 when none ends here
	edge, more uint32
}

type edge struct {
	label byte
	node  uint32
}

// newMatcher builds a trie over the tokens by the given spellings, which are
// not empty and all different.
func newMatcher(tokens []addedToken, spelling []string) matcher {
	m := matcher{tokens: tokens}
	if len(tokens) == 0 {
		return m
	}
	order := make([]int, len(tokens))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(spelling[a], spelling[b]) })
	m.grow(order, spelling, 0)
	root := m.nodes[0]
	for _, e := range m.edges[root.edge : root.edge+root.more] {
		m.first[e.label] = e.node
	}
	if root.more <= fewFirsts {
		for _, e := range m.edges[root.edge : root.edge+root.more] {
			m.firsts = append(m.firsts, e.label)
		}
	}
	return m
}

// grow adds the node that all of order, sorted, share their first depth
// bytes with, and those below.
func (m *matcher) grow(order []int, spelling []string, depth int) uint32 {
	at := len(m.nodes)
	m.nodes = append(m.nodes, node{token: -1})
	if len(spelling[order[0]]) == depth {
		m.nodes[at].token = int32(order[0])
		order = order[1:]
	}
	var groups [][]int
	for len(order) > 0 {
		label := spelling[order[0]][depth]
		n := 1
		for n < len(order) && spelling[order[n]][depth] == label {
			n++
		}
		groups = append(groups, order[:n])
		order = order[n:]
	}
	from := uint32(len(m.edges))
	m.nodes[at].edge, m.nodes[at].more = from, uint32(len(groups))
	for _, g := range groups {
		m.edges = append(m.edges, edge{label: spelling[g[0]][depth]})
	}
	for i, g := range groups {
		child := m.grow(g, spelling, depth+1)
		m.edges[from+uint32(i)].node = child
	}
	return uint32(at)
}

// empty reports that nothing can be found.
func (m *matcher) empty() bool { return len(m.tokens) == 0 }

// next returns the first token at or after i, the longest of those that
// begin there, and whether there is one.
func (m *matcher) next(s string, i int) (start, end, token int, ok bool) {
	for i = m.candidate(s, i); i < len(s); i = m.candidate(s, i+1) {
		if end, token := m.longest(s, i); token >= 0 {
			return i, end, token, true
		}
	}
	return len(s), len(s), -1, false
}

// candidate returns the first place at or after i where a token may begin,
// len(s) if there is none.
func (m *matcher) candidate(s string, i int) int {
	if m.firsts == nil {
		for i < len(s) && m.first[s[i]] == 0 {
			i++
		}
		return i
	}
	for i < len(s) {
		end := min(len(s), i+searchWindow)
		if len(m.firsts) == 1 {
			end = len(s)
		}
		found := end
		for _, b := range m.firsts {
			if n := strings.IndexByte(s[i:found], b); n >= 0 {
				found = i + n
			}
		}
		if found < end {
			return found
		}
		i = end
	}
	return i
}

func (m *matcher) longest(s string, i int) (end, token int) {
	token = -1
	at := m.first[s[i]]
	for i++; ; i++ {
		n := &m.nodes[at]
		if n.token >= 0 {
			end, token = i, int(n.token)
		}
		if i == len(s) {
			return end, token
		}
		at = 0
		for _, e := range m.edges[n.edge : n.edge+n.more] {
			if e.label == s[i] {
				at = e.node
				break
			}
		}
		if at == 0 {
			return end, token
		}
	}
}

// cut is the walk of a matcher over one text, with the flags applied as
// AddedVocabulary::find_matches applies them (tokenizers 0.22.0,
// tokenizer/added_vocabulary.rs).
type cut struct {
	matcher *matcher
	u       *unidata.Tables
	text    string
	marks   bool // spaces in the text are marks, no white space
	scanned int  // where the search goes on
	done    int  // what has been given out
}

// next returns the next added token and where it and the text before it
// lie. ok is false when none is left; then the rest of the text is
// text[before:].
func (c *cut) next() (before, start, end int, token *addedToken, ok bool) {
	for {
		start, end, n, found := c.matcher.next(c.text, c.scanned)
		if !found {
			return c.done, len(c.text), len(c.text), nil, false
		}
		c.scanned = end
		token := &c.matcher.tokens[n]
		if token.singleWord && (c.wordBefore(start) || c.wordAfter(end)) {
			continue
		}
		if token.lstrip {
			start = max(c.spaceBefore(start), c.done)
		}
		if token.rstrip {
			end = c.spaceAfter(end)
		}
		before = c.done
		c.done = end
		return before, start, end, token, true
	}
}

func (c *cut) wordBefore(i int) bool {
	r, n := utf8.DecodeLastRuneInString(c.text[:i])
	return n > 0 && c.u.Flags(r)&unidata.Word != 0
}

func (c *cut) wordAfter(i int) bool {
	r, n := utf8.DecodeRuneInString(c.text[i:])
	return n > 0 && c.u.Flags(r)&unidata.Word != 0
}

func (c *cut) spaceBefore(i int) int {
	for i > 0 {
		r, n := utf8.DecodeLastRuneInString(c.text[:i])
		if !c.isSpace(r) {
			break
		}
		i -= n
	}
	return i
}

func (c *cut) spaceAfter(i int) int {
	for i < len(c.text) {
		r, n := utf8.DecodeRuneInString(c.text[i:])
		if !c.isSpace(r) {
			break
		}
		i += n
	}
	return i
}

func (c *cut) isSpace(r rune) bool {
	return c.u.Flags(r)&unidata.Space != 0 && !(c.marks && r == ' ')
}

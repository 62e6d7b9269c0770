package zmtp

import "strings"

// topics is a set of byte prefixes, each with a count.
type topics struct {
	count   map[string]int
	longest int
	bytes   int // of the prefixes
}

// add counts a prefix up and says whether it is new.
func (t *topics) add(prefix string) bool {
	if t.count == nil {
		t.count = make(map[string]int)
	}
	// The text may be part of a larger one, which the map must not keep.
	n, ok := t.count[prefix]
	if !ok {
		prefix = strings.Clone(prefix)
		t.bytes += len(prefix)
		t.longest = max(t.longest, len(prefix))
	}
	t.count[prefix] = n + 1
	return !ok
}

// remove counts a prefix down and says whether it is gone.
func (t *topics) remove(prefix string) bool {
	n, ok := t.count[prefix]
	if !ok {
		return false
	}
	if n > 1 {
		t.count[prefix] = n - 1
		return false
	}
	delete(t.count, prefix)
	t.bytes -= len(prefix)
	return true
}

// match says whether a prefix of the topic is in the set. It takes as many
// look-ups as the longest prefix ever added has bytes, and does not allocate.
func (t *topics) match(topic []byte) bool {
	if len(t.count) == 0 {
		return false
	}
	for n := range min(t.longest, len(topic)) + 1 {
		if _, ok := t.count[string(topic[:n])]; ok {
			return true
		}
	}
	return false
}

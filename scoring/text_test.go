package scoring

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAppendTextKeys(t *testing.T) {
	text := strings.Repeat("é", 128) + strings.Repeat("b", 128) + "tail"
	keys := AppendTextKeys(nil, text, 128)
	require.Len(t, keys, 3, "by characters, not bytes; the short tail is a piece")
	other := AppendTextKeys(nil, strings.Repeat("é", 128)+strings.Repeat("c", 128)+"tail", 128)
	require.Equal(t, keys[0], other[0])
	require.NotEqual(t, keys[1], other[1])
	require.NotEqual(t, keys[2], other[2], "a key names all before it")
	require.Empty(t, AppendTextKeys(nil, "", 128))
	require.Len(t, AppendTextKeys(nil, "\xff\xfeab", 0), 4)
}

func TestTextTree(t *testing.T) {
	tree, err := NewTextTree(TextTreeOptions{})
	require.NoError(t, err)
	cs := []Candidate{{ID: 1}, {ID: 2}, {ID: 3}}
	match := func(text string) []int32 {
		tree.Match(text, cs)
		return []int32{cs[0].Match.Blocks[GPU], cs[1].Match.Blocks[GPU], cs[2].Match.Blocks[GPU]}
	}
	tree.Sent(1, "hello world")
	tree.Sent(2, "hello there")
	require.Equal(t, []int32{11, 6, 0}, match("hello world!"))
	require.Equal(t, []int32{6, 11, 0}, match("hello there"))
	require.Equal(t, []int32{8, 6, 0}, match("hello wonder"), "a part of an edge counts")
	require.Equal(t, []int32{0, 0, 0}, match("Hello"))
	require.Equal(t, 4, tree.Match("héé…", cs), "characters")
	tree.Sent(3, "hé")
	require.Equal(t, []int32{1, 1, 2}, match("héé"))
	require.Equal(t, []int{11, 11, 2}, []int{tree.Chars(1), tree.Chars(2), tree.Chars(3)})
	tree.Remove(2)
	require.Equal(t, []int32{6, 0, 1}, match("hello there"))
	_, err = NewTextTree(TextTreeOptions{MaxChars: -1})
	require.ErrorIs(t, err, ErrOption)
}

func TestTextTreeEvictsLeavesByAge(t *testing.T) {
	h := newHand()
	tree, err := NewTextTree(TextTreeOptions{MaxChars: 16, Now: h.now})
	require.NoError(t, err)
	for _, s := range []string{"aaaa1111", "aaaa2222", "aaaa1111"} {
		h.advance(1)
		tree.Sent(1, s)
	}
	require.Equal(t, 12, tree.Chars(1))
	h.advance(1)
	tree.Sent(1, "bbbbbbbb") // 20 characters, so the leaf 2222 goes, then 1111
	cs := []Candidate{{ID: 1}}
	tree.Match("aaaa2222", cs)
	require.Equal(t, int32(4), cs[0].Match.Blocks[GPU])
	tree.Match("bbbbbbbb", cs)
	require.Equal(t, int32(8), cs[0].Match.Blocks[GPU])
	require.LessOrEqual(t, tree.Chars(1), 16)
	tree.Sent(1, strings.Repeat("x", 100))
	require.LessOrEqual(t, tree.Chars(1), 16)
}

// TestTextTreeAgainstList compares with comparing every text sent.
func TestTextTreeAgainstList(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		tree, err := NewTextTree(TextTreeOptions{})
		require.NoError(t, err)
		sent := map[WorkerID][]string{}
		cs := []Candidate{{ID: 0}, {ID: 1}, {ID: 2}}
		for range 200 {
			var b strings.Builder
			for range rng.IntN(12) {
				b.WriteString([]string{"a", "b", "é", "\xff", "世"}[rng.IntN(5)])
			}
			text, w := b.String(), WorkerID(rng.IntN(3))
			tree.Match(text, cs)
			for i := range cs {
				best := 0
				for _, s := range sent[cs[i].ID] {
					_, n := common(s, text)
					best = max(best, n)
				}
				require.Equal(t, int32(best), cs[i].Match.Blocks[GPU], "%q on %d", text, i)
			}
			switch rng.IntN(20) {
			case 0:
				tree.Remove(w)
				sent[w] = nil
			default:
				tree.Sent(w, text)
				sent[w] = append(sent[w], text)
			}
		}
		for w := range WorkerID(3) {
			tree.Remove(w)
		}
		require.Empty(t, tree.root.children, "nothing is left behind")
	}
}

func TestTextTreeConcurrentSafe(t *testing.T) {
	tree, err := NewTextTree(TextTreeOptions{MaxChars: 200})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			cs := []Candidate{{ID: 0}, {ID: 1}}
			for i := range 200 {
				text := fmt.Sprintf("prompt %d of %d", i%17, g)
				tree.Sent(WorkerID(i%2), text)
				tree.Match(text, cs)
				if i%50 == 0 {
					tree.Remove(WorkerID(g % 2))
				}
			}
		})
	}
	wg.Wait()
}

func FuzzTextTree(f *testing.F) {
	f.Add("hello world", "hello there", "hé")
	f.Add("\xff\xfe", "\xff", "")
	f.Add("世界", "世", "世界世界")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		tree, _ := NewTextTree(TextTreeOptions{MaxChars: 20})
		cs := []Candidate{{ID: 1}, {ID: 2}}
		tree.Sent(1, a)
		tree.Sent(2, b)
		tree.Sent(1, c)
		n := tree.Match(a, cs)
		for _, c := range cs {
			if got := int(c.Match.Blocks[GPU]); got < 0 || got > n {
				t.Fatalf("matched %d of %d", got, n)
			}
			if tree.Chars(c.ID) > 20 {
				t.Fatalf("%d characters", tree.Chars(c.ID))
			}
		}
		tree.Remove(1)
		tree.Remove(2)
		if len(tree.root.children) > 0 {
			t.Fatal("nodes left")
		}
	})
}

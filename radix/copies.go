package radix

// copyTable counts further copies of blocks, those beyond a holder's first, by
// (holder number, position): a pointer-free open-addressing table with linear
// probing. Only writers use it.
type copyTable struct {
	slots []copySlot
	live  int
}

type copySlot struct {
	key   uint64 // hid<<32 | position; 0 = empty
	count uint32
}

func copyKey(hid, pos uint32) uint64 { return uint64(hid)<<32 | uint64(pos) }

func (t *copyTable) find(key uint64) int {
	mask := len(t.slots) - 1
	i := int(key*0x9e3779b97f4a7c15>>32) & mask
	for t.slots[i].key != key && t.slots[i].key != 0 {
		i = (i + 1) & mask
	}
	return i
}

// put sets a count that is not there yet.
func (t *copyTable) put(key uint64, n uint32) {
	t.add(key)
	t.slots[t.find(key)].count = n
}

// add counts a copy and reports whether it is the first further one.
func (t *copyTable) add(key uint64) (first bool) {
	if t.live*4 >= len(t.slots)*3 {
		old := t.slots
		t.slots = make([]copySlot, max(16, 2*len(old)))
		for _, s := range old {
			if s.key != 0 {
				t.slots[t.find(s.key)] = s
			}
		}
	}
	s := &t.slots[t.find(key)]
	if first = s.key == 0; first {
		s.key = key
		t.live++
	}
	if s.count++; s.count == 0 {
		s.count-- // four thousand million copies: stay there
	}
	return first
}

// sub takes a copy away. It reports whether there was one, and whether it was
// the last.
func (t *copyTable) sub(key uint64) (had, last bool) {
	if t.live == 0 {
		return false, false
	}
	i := t.find(key)
	if t.slots[i].key == 0 {
		return false, false
	}
	if t.slots[i].count--; t.slots[i].count > 0 {
		return true, false
	}
	t.delete(i)
	return true, true
}

// drop forgets all copies and returns how many there were.
func (t *copyTable) drop(key uint64) uint32 {
	if t.live == 0 {
		return 0
	}
	i := t.find(key)
	n := t.slots[i].count
	if t.slots[i].key != 0 {
		t.delete(i)
	}
	return n
}

func (t *copyTable) get(key uint64) uint32 {
	if t.live == 0 {
		return 0
	}
	return t.slots[t.find(key)].count
}

// delete empties slot i and moves up what probed past it.
func (t *copyTable) delete(i int) {
	t.live--
	mask := len(t.slots) - 1
	for j := (i + 1) & mask; t.slots[j].key != 0; j = (j + 1) & mask {
		want := int(t.slots[j].key*0x9e3779b97f4a7c15>>32) & mask
		if (j-want)&mask >= (j-i)&mask {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = copySlot{}
}

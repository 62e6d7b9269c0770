package blockhash

// window is the part of a prompt's ids that is still to be hashed. It refers
// to the caller's slice until ids are appended, and then to a copy of its own.
type window[T uint32 | int64] struct {
	ids   []T // ids from position base on
	base  int
	own   []T // buffer, kept for reuse
	owned bool
}

// set makes the window refer to the ids of a whole prompt.
func (w *window[T]) set(ids []T) {
	w.ids, w.base, w.owned = ids, 0, false
}

// end returns the number of ids of the prompt.
func (w *window[T]) end() int { return w.base + len(w.ids) }

// at returns the ids of positions from to to.
func (w *window[T]) at(from, to int) []T { return w.ids[from-w.base : to-w.base] }

// extend appends ids; those before position done are not needed any more.
func (w *window[T]) extend(done int, ids []T) {
	used := done - w.base
	if !w.owned {
		w.own = append(w.own[:0], w.ids[used:]...)
		w.base, w.owned = done, true
	} else if used > len(w.ids)/2 {
		w.own = append(w.own[:0], w.ids[used:]...)
		w.base = done
	}
	w.own = append(w.own, ids...)
	w.ids = w.own
}

package scoring

// slots keeps a value for each worker by its number: in a slice for the small
// numbers that callers give, so that decisions look nothing up in a map, and in a
// map for those beyond. The zero value is empty.
type slots[T any] struct {
	dense  []*T
	beyond map[WorkerID]*T
	n      int
}

const maxDense = 1 << 20 // 8 MiB of pointers

// get returns a worker's value; nil if it has none.
func (s *slots[T]) get(w WorkerID) *T {
	if w < WorkerID(len(s.dense)) {
		return s.dense[w]
	}
	if w < maxDense {
		return nil
	}
	return s.beyond[w]
}

// put gives a worker without a value one.
func (s *slots[T]) put(w WorkerID, v *T) {
	s.n++
	if w >= maxDense {
		if s.beyond == nil {
			s.beyond = map[WorkerID]*T{}
		}
		s.beyond[w] = v
		return
	}
	if int(w) >= len(s.dense) {
		s.dense = append(s.dense, make([]*T, int(w)+1-len(s.dense))...)
	}
	s.dense[w] = v
}

// remove takes a worker's value away, if it has one.
func (s *slots[T]) remove(w WorkerID) {
	if s.get(w) == nil {
		return
	}
	s.n--
	if w < maxDense {
		s.dense[w] = nil
	} else {
		delete(s.beyond, w)
	}
}

// all yields the values there are, in no order.
func (s *slots[T]) all(yield func(*T) bool) {
	for _, v := range s.dense {
		if v != nil && !yield(v) {
			return
		}
	}
	for _, v := range s.beyond {
		if !yield(v) {
			return
		}
	}
}

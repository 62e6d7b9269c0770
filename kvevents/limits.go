package kvevents

// Limits bound what one payload may make a [Decoder] allocate. They are
// checked before memory is taken. A zero field means its default; the totals
// are per batch.
type Limits struct {
	PayloadBytes int // default 64 MiB
	Events       int // default 131,072, at about 400 bytes each
	Hashes       int // default 2,097,152
	Tokens       int // default 33,554,432, lookahead included
	ExtraKeys    int // default 1,048,576
}

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.PayloadBytes, 64<<20)
	def(&l.Events, 1<<17)
	def(&l.Hashes, 1<<21)
	def(&l.Tokens, 1<<25)
	def(&l.ExtraKeys, 1<<20)
	return l
}

//go:build amd64 && !purego

package blockhash

const (
	prime32x1 = 0x9e3779b1
	prime32x2 = 0x85ebca77
	prime32x3 = 0xc2b2ae3d
	prime64x1 = 0x9e3779b185ebca87
	prime64x2 = 0xc2b2ae3d27d4eb4f
	prime64x3 = 0x165667b19e3779f9
	prime64x4 = 0x85ebca77c2b2ae63
	prime64x5 = 0x27d4eb2f165667c5
)

// xxh3Table holds XXH3's constants. The layout is known to the assembly.
type xxh3Table struct {
	secret    [24]uint64 // the default one, kSecret in xxhash.h
	start     [8]uint64  // what the accumulators of long messages start from
	avalanche uint64
}

var xxh3Constants = xxh3Table{
	secret: [24]uint64{
		0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
		0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
		0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
		0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
		0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
		0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
	},
	start:     [8]uint64{prime32x3, prime64x1, prime64x2, prime64x3, prime64x4, prime32x2, prime64x5, prime32x1},
	avalanche: 0x165667919e3779f9,
}

// xxh3Long is the length from which XXH3 takes messages by stripes.
const xxh3Long = 240

// A ring of messages. Each starts on a cache line, as stripes are read 64 bytes
// at a time, has ringOwn bytes before it, and if it may be a long one starts
// ringShift bytes later where that keeps it out of the way of the ids.
const (
	ringOwn   = 64
	ringShift = 2048
)

// xxh3Chain encodes n blocks of ids, each with some steps and a last one of
// rest ids, and writes the XXH3-128 digests of their messages, of 17 bytes or
// more each, and their low halves as keys. It works in a ring of lead+1
// messages, of which the first is ring, and the next room bytes on; ids go to
// prefix bytes on, behind them the trailer, of which trailing bytes count. Of
// what stands before the ids it reads the one to three bytes behind the digest
// and nothing else: the start of a message is known, and so are the digest,
// which is that of the message before, and the length of the frame. The first
// message's is parent. long says that messages may have more than xxh3Long
// bytes. big reports an id of 2^31 or more: with pickle the digests are then
// wrong.
//
//go:noescape
func xxh3Chain(digests *byte, keys *uint64, ring *byte, room, lead int, ids *uint32, steps, rest, n int, cbor bool, prefix int,
	trailer uint64, trailing int, long bool, parent *[16]byte, idt *idTable, t *xxh3Table) (big bool)

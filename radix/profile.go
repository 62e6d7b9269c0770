package radix

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is what a cache group's layers attend to. The zero value is full
// attention.
type Kind uint8

// The kinds of cache groups, as vLLM's KVCacheSpec classes have them.
const (
	FullAttention Kind = iota
	SlidingWindow      // needs Group.Window
	ChunkedLocal       // needs Group.Chunk
	Mamba              // a state at a block's end, "align" mode
)

var kindNames = [...]string{"full_attention", "sliding_window", "chunked_local", "mamba"}

// String returns the kind's name as vLLM's events and traces spell it.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// ParseKind reads a kind from its name: full_attention, sliding_window,
// chunked_local (or chunked_local_attention), mamba.
func ParseKind(name string) (Kind, error) {
	switch name {
	case "chunked_local_attention":
		return ChunkedLocal, nil
	}
	for i, n := range kindNames {
		if n == name {
			return Kind(i), nil
		}
	}
	return 0, fmt.Errorf("%w: unknown kind of cache group %q, want one of %s", ErrProfile, name, strings.Join(kindNames[:], ", "))
}

// Group describes one KV cache group of an engine. Its place in
// [ProfileOptions.Groups] is the group_idx of the engine's events.
type Group struct {
	Kind      Kind
	BlockSize int // tokens; 0 = the profile's hash unit
	Window    int // sliding window, tokens
	Chunk     int // chunked local attention, tokens
	// Eagle marks the group of the draft model. Where EAGLE is on and no group
	// is marked, all of them are the draft's.
	Eagle bool
}

// CopyPolicy says how a repeated announcement of a block is read. Neither counts
// below zero. What each gets wrong of the look-ups recorded from vLLM 0.10.2 to
// 0.33.0 (testdata/vllm), where events name their group or there is only one:
//
//	stream                  look-ups   Count            Set
//	cache manager               3826   0                89 too low
//	scheduler                   2658   0                3 too low
//	with full reports             59   2 too high       0
type CopyPolicy uint8

const (
	// Count keeps one copy for each announcement and needs as many removals: it
	// is exact for vLLM and SGLang. It errs high when an engine announces a
	// block again without holding a further copy (full reports), until the next
	// clear.
	Count CopyPolicy = iota
	// Set keeps a block once, however often it is announced; one removal takes
	// it away. It errs low where further copies are left, and is right for
	// engines that announce the last copy's removal only.
	Set
)

// Tri is a setting that can be left to the profile.
type Tri uint8

// The values of a Tri; the zero value is Auto.
const (
	Auto Tri = iota
	On
	Off
)

// Connector is the offload connector of an engine. It decides how blocks beyond
// the device pool are loaded (testdata/vllm/tiers/README.md).
type Connector uint8

const (
	// NoConnector predicts no external hit.
	NoConnector Connector = iota
	// Offloading is vLLM's OffloadingConnector: chunks of ChunkTokens.
	Offloading
	// SimpleOffload is vLLM's SimpleCPUOffloadConnector. Before 0.30 it
	// announces no stores, so nothing is predicted for it.
	SimpleOffload
)

// ClearPolicy says what an engine's AllBlocksCleared empties, which the event
// itself does not tell.
type ClearPolicy uint8

const (
	// ClearAuto follows the connector, on the side that undercounts: everything
	// without a connector and with Offloading; with SimpleOffload the device,
	// or the other media if the clear followed an event of one in its message.
	ClearAuto ClearPolicy = iota
	// ClearDevice empties the GPU only.
	ClearDevice
	// ClearAll empties every medium.
	ClearAll
)

// ProfileOptions describes a worker's engine. The zero value is the newest
// known vLLM with one full-attention group, without a block size: it matches
// blocks, but no tokens (set HashUnit for those).
type ProfileOptions struct {
	// Release is the engine's release, such as "0.32.0"; "" or a newer one than
	// known is read by the newest rules known.
	Release string
	// HashUnit is the tokens a key stands for (hash_block_size); 0 = the
	// smallest block size of Groups.
	HashUnit int
	// SchedulerBlock is the grain of a hit (scheduler_block_size); 0 = the least
	// common multiple of the groups' block sizes.
	SchedulerBlock int
	// Groups lists the engine's cache groups in order; nil = one full-attention
	// group of HashUnit.
	Groups []Group
	// Eagle says that the engine drafts with EAGLE or MTP (use_eagle).
	Eagle bool
	// Lookahead is num_hash_lookahead_tokens (0.33).
	Lookahead int
	// PartialHits says whether a hit may end inside a block; Auto = as the
	// engine decides: from 0.26 with a Mamba block larger than the unit while
	// every other layout is full attention or has blocks of one unit.
	PartialHits Tri
	// Copies is how repeated announcements are read.
	Copies CopyPolicy
	// Connector and ChunkTokens describe the offload connector. ChunkBlocks is
	// how many blocks of a group make a chunk of the OffloadingConnector; 0 = 1.
	Connector   Connector
	ChunkBlocks int
	// Clear is what AllBlocksCleared empties.
	Clear ClearPolicy
}

package parity_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/parity"
	"github.com/stretchr/testify/require"
)

// observe feeds a recorded file to a monitor and returns its header.
func observe(t *testing.T, name string, m *parity.Monitor) {
	t.Helper()
	var dec kvevents.Decoder
	var b kvevents.Batch
	for _, line := range bytes.Split(golden.Read(t, name), []byte("\n")) {
		var l struct {
			Payload string `json:"payload_b64"`
		}
		if json.Unmarshal(line, &l) != nil || l.Payload == "" {
			continue
		}
		payload, err := base64.StdEncoding.DecodeString(l.Payload)
		require.NoError(t, err)
		require.NoError(t, dec.Decode(payload, &b))
		m.Observe(&b)
	}
}

type header struct {
	Algo  string  `json:"hash_algo"`
	Seed  *string `json:"pythonhashseed"`
	Seed2 *string `json:"python_hash_seed"`
	Size  int     `json:"hash_block_size"`
}

func headerOf(t *testing.T, name string) (h header) {
	t.Helper()
	first, _, _ := bytes.Cut(golden.Read(t, name), []byte("\n"))
	require.NoError(t, json.Unmarshal(first, &h))
	if h.Seed == nil {
		h.Seed = h.Seed2
	}
	return h
}

// TestRecorded: the monitor finds how every recorded engine hashed, or that it
// cannot be known; it calls nothing a mismatch that is not.
func TestRecorded(t *testing.T) {
	exact, random := 0, 0
	for _, pattern := range []string{"vllm/server/*/truth-*.jsonl", "vllm/truth/*/*.jsonl"} {
		for _, name := range golden.Files(t, pattern) {
			h := headerOf(t, name)
			version := path.Base(path.Dir(name))
			o := parity.Options{Release: version, HashBlockSize: h.Size, Sample: 1}
			if h.Seed != nil {
				o.Seeds = append(o.Seeds, blockhash.SeedText(*h.Seed))
			}
			m, err := parity.New(o)
			require.NoError(t, err)
			observe(t, name, m)
			v := m.Verdict()
			scheme, err := blockhash.SchemeFor("vllm", version)
			require.NoError(t, err)
			algorithm, err := blockhash.ParseAlgorithm(h.Algo)
			require.NoError(t, err)
			_, err = blockhash.New(blockhash.Options{Scheme: scheme, Algorithm: algorithm, BlockSize: 16, Seed: seedOf(h)})
			if err != nil { // the root is random
				random++
				require.NotEqual(t, parity.Exact, v.State, name)
				if scheme.EventExtraKeys() {
					require.Equal(t, parity.Mismatch, v.State, name)
					require.NotEmpty(t, v.Tried)
					require.Contains(t, v.Error(), "sha256")
				} else {
					require.Equal(t, parity.Undecided, v.State, name)
				}
				continue
			}
			exact++
			require.Equal(t, parity.Exact, v.State, "%s: %v", name, v)
			require.Zero(t, v.Mismatched, "%s: %v", name, v)
			require.Positive(t, v.Matched)
			require.Equal(t, algorithm, v.Algorithm, name)
			require.Equal(t, scheme, v.Scheme, name)
		}
	}
	t.Logf("%d recordings settled, %d with a random root", exact, random)
	require.Positive(t, exact)
	require.Positive(t, random)
}

func seedOf(h header) blockhash.Seed {
	if h.Seed == nil {
		return blockhash.Seed{}
	}
	return blockhash.SeedText(*h.Seed)
}

// TestSGLang: its chains are found too, of pages and of pairs. Before 0.4.8 an
// event is a tree node, whose parent is hash(()) at the root: nothing to decide
// on. In dynamo format the hash covers an extra key that no event carries: such
// blocks decide nothing, and salted ones tell the format.
func TestSGLang(t *testing.T) {
	for _, name := range golden.Files(t, "sglang/truth/*.jsonl") {
		version, _, _ := strings.Cut(path.Base(name), "-")
		m, err := parity.New(parity.Options{Engine: "sglang", Release: version, Sample: 1, Dynamo: parity.Open})
		require.NoError(t, err)
		observe(t, name, m)
		v := m.Verdict()
		want := parity.Exact
		switch {
		case version == "0.4.6.post5" || version == "0.4.7":
			want = parity.Undecided
		}
		require.Equal(t, want, v.State, "%s: matched %d, mismatched %d, unknown %d", name, v.Matched, v.Mismatched, v.Unknown)
		if want == parity.Exact {
			require.Equal(t, strings.Contains(name, "dynamo"), v.Dynamo == parity.Yes, name)
			require.Equal(t, strings.Contains(name, "eagle"), v.EAGLE, name)
		} else {
			require.True(t, v.Nodes, name)
		}
	}
}

// stored is an event of plain blocks hashed one way.
func stored(t *testing.T, rng *rand.Rand, o blockhash.Options) *kvevents.Batch {
	t.Helper()
	h, err := blockhash.New(o)
	require.NoError(t, err)
	tokens := make([]uint32, 2*o.BlockSize)
	for i := range tokens {
		tokens[i] = rng.Uint32N(100000)
	}
	keys, err := h.AppendKeys(nil, &blockhash.Prompt{Tokens: tokens})
	require.NoError(t, err)
	return &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.BlockStored, Hashes: keys, Tokens: tokens, BlockSize: o.BlockSize,
		Medium: []byte("GPU"), ExtraKeys: make([][]kvevents.ExtraKey, len(keys))}}}
}

// TestChange: an engine that comes back with another seed is found again; one
// that nothing fits is said once.
func TestChange(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	scheme, err := blockhash.SchemeFor("vllm", "0.32.0")
	require.NoError(t, err)
	var said []parity.State
	m, err := parity.New(parity.Options{Sample: 1, Notify: func(v parity.Verdict) { said = append(said, v.State) }})
	require.NoError(t, err)
	o := blockhash.Options{Scheme: scheme, BlockSize: 32, Algorithm: blockhash.SHA256CBOR}
	for range 5 {
		m.Observe(stored(t, rng, o))
	}
	require.Equal(t, blockhash.SHA256CBOR, m.Verdict().Algorithm)
	o.Seed = blockhash.SeedText("0")
	m.Observe(stored(t, rng, o))
	require.Equal(t, o.Seed, m.Verdict().Seed)
	require.Equal(t, []parity.State{parity.Exact, parity.Exact}, said, "the other seed is a change")

	o.Seed = blockhash.SeedText("a secret")
	for range 10 {
		m.Observe(stored(t, rng, o))
	}
	v := m.Verdict()
	require.Equal(t, parity.Mismatch, v.State)
	require.NotZero(t, v.Announced)
	require.NotEmpty(t, v.Tried)
	require.Equal(t, []parity.State{parity.Exact, parity.Exact, parity.Mismatch}, said)

	// Blocks that are not described in full decide nothing.
	unknown := v.Unknown
	for _, spoil := range []func(*kvevents.Event){
		func(ev *kvevents.Event) { ev.LoRAName = []byte("a") },
		func(ev *kvevents.Event) { ev.HasParent = true },
		func(ev *kvevents.Event) { ev.Medium = []byte("CPU") },
		func(ev *kvevents.Event) {
			ev.ExtraKeys[0] = []kvevents.ExtraKey{{Kind: kvevents.ExtraText, Text: []byte("salt")}}
		},
		func(ev *kvevents.Event) { ev.Tokens = nil },
		func(ev *kvevents.Event) { ev.BlockSize = 0 },
		func(ev *kvevents.Event) { ev.Hashes = nil; ev.ExtraKeys = nil },
	} {
		b := stored(t, rng, o)
		spoil(&b.Events[0])
		m.Observe(b)
	}
	require.Equal(t, v.Mismatched, m.Verdict().Mismatched)
	require.Equal(t, unknown+12, m.Verdict().Unknown)

	o.Seed = blockhash.Seed{}
	m.Observe(stored(t, rng, o))
	require.Equal(t, parity.Exact, m.Verdict().State)
}

func TestOptions(t *testing.T) {
	_, err := parity.New(parity.Options{Engine: "tgi"})
	require.Error(t, err)
	_, err = parity.New(parity.Options{Release: "x"})
	require.Error(t, err)
	require.Equal(t, "undecided", parity.State(0).String())
	m, err := parity.New(parity.Options{})
	require.NoError(t, err)
	m.Observe(nil)
	require.Equal(t, parity.Undecided, m.Verdict().State)
}

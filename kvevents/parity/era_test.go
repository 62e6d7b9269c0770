package parity_test

import (
	"math/rand/v2"
	"testing"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/parity"
	"github.com/stretchr/testify/require"
)

func TestEras(t *testing.T) {
	for release, want := range map[string]string{
		"0.10.2": "vllm from 0.10.2, before 0.11.1", "0.12.0": "vllm from 0.11.1, before 0.13.0", "0.13.0": "vllm from 0.13.0, before 0.14.0",
		"0.16.0": "vllm from 0.14.0, before 0.17.0", "0.19.1": "vllm from 0.19.0, before 0.20.0", "0.23.0+cpu": "vllm from 0.22.0, before 0.24.0",
		"v0.28.0": "vllm from 0.26.0, before 0.29.0", "0.32.0": "vllm from 0.31.0, before 0.33.0", "0.34.1": "vllm from 0.33.0",
	} {
		e, err := parity.EraOf("vllm", release)
		require.NoError(t, err)
		require.Equal(t, want, e.String(), release)
	}
	old, err := parity.EraOf("SGLang", "0.5.7")
	require.NoError(t, err)
	next, err := parity.EraOf("sglang", "0.5.9")
	require.NoError(t, err)
	apart, err := parity.EraOf("sglang", "0.5.23")
	require.NoError(t, err)
	require.Equal(t, "sglang from 0.5.6, before 0.5.17; or sglang from 0.5.23", parity.Releases([]parity.Era{old, next, apart}))
	require.Empty(t, parity.Releases(nil))
	for _, bad := range [][2]string{{"vllm", "0.9.0"}, {"tgi", "1.0.0"}, {"vllm", ""}, {"sglang", "0.32.0"}} {
		_, err := parity.EraOf(bad[0], bad[1])
		require.Error(t, err, bad)
	}
}

// wire is a batch as a release sends it.
func wire(t *testing.T, engine, release string, b *kvevents.Batch) *kvevents.Batch {
	t.Helper()
	form, err := kvevents.FormFor(engine, release)
	require.NoError(t, err)
	for i := range b.Events {
		b.Events[i].HasGroup, b.Events[i].SpecKind = true, []byte("full_attention")
	}
	var got kvevents.Batch
	require.NoError(t, new(kvevents.Decoder).Decode(kvevents.AppendBatch(nil, b, form), &got))
	return &got
}

// TestAlien: events that no release publishes, after those of one that did, and what
// nobody publishes at all.
func TestAlien(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	scheme := func(engine, release string) blockhash.Scheme {
		s, err := blockhash.SchemeFor(engine, release)
		require.NoError(t, err)
		return s
	}
	arrays := blockhash.Options{Scheme: scheme("vllm", "0.20.2"), BlockSize: 16, Seed: blockhash.SeedText("0")}
	maps := blockhash.Options{Scheme: scheme("vllm", "0.32.0"), BlockSize: 32}
	pages := blockhash.Options{Scheme: scheme("sglang", "0.5.23"), BlockSize: 64}
	var said []parity.State
	m, err := parity.New(parity.Options{Engine: parity.AnyEngine, Sample: 1, Dynamo: parity.Open, Notify: func(v parity.Verdict) { said = append(said, v.State) }})
	require.NoError(t, err)
	for range 3 {
		m.Observe(wire(t, "vllm", "0.20.2", stored(t, rng, arrays)))
	}
	v := m.Verdict()
	require.Equal(t, parity.Exact, v.State)
	require.Equal(t, "vllm from 0.20.0, before 0.22.0", parity.Releases(v.Eras))
	require.Equal(t, []parity.Candidate{{Scheme: arrays.Scheme}}, v.Candidates)

	m.Observe(wire(t, "vllm", "0.32.0", stored(t, rng, maps)))
	v = m.Verdict()
	require.Equal(t, parity.Alien, v.State)
	require.Empty(t, v.Eras)
	require.Contains(t, v.Error(), "no known release")
	m.Observe(wire(t, "vllm", "0.20.2", stored(t, rng, arrays)))
	require.Equal(t, parity.Alien, m.Verdict().State, "until it is reset")

	m.Reset()
	require.Equal(t, parity.Undecided, m.Verdict().State)
	m.Observe(wire(t, "vllm", "0.32.0", stored(t, rng, maps)))
	v = m.Verdict()
	require.Equal(t, parity.Exact, v.State)
	require.Equal(t, 32, v.BlockSize)
	require.Equal(t, "vllm from 0.29.0", parity.Releases(v.Eras), "the seed is unset, and the root fixed")
	require.Len(t, v.Candidates, 3)

	m.Reset()
	m.Observe(wire(t, "sglang", "0.5.23", stored(t, rng, pages)))
	v = m.Verdict()
	require.Equal(t, parity.Exact, v.State)
	require.Equal(t, "sglang from 0.5.20", parity.Releases(v.Eras))
	require.Equal(t, parity.Open, v.Dynamo)
	require.Equal(t, []parity.State{parity.Exact, parity.Alien, parity.Exact, parity.Exact}, said)
}

// TestSeedsAreChecked: a seed that no engine can have is said, not tried in vain.
func TestSeedsAreChecked(t *testing.T) {
	for _, seed := range []blockhash.Seed{blockhash.SeedText("\x00"), blockhash.SeedText("\xff"), blockhash.SeedRoot([]byte("short"))} {
		_, err := parity.New(parity.Options{Seeds: []blockhash.Seed{blockhash.SeedText("7"), seed}})
		require.ErrorContains(t, err, "parity: Options.Seeds: blockhash: ")
	}
}

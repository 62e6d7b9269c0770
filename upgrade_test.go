package kvatlas_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/kveventstest"
)

// TestRollingUpgradeOverSockets: one automatic worker whose engine is killed and comes
// back as another release, and another engine, on the same ports. Every prediction that
// is made is what the engine reports, and all but the first after each start are made.
func TestRollingUpgradeOverSockets(t *testing.T) {
	const size = 16
	random := make([]byte, 32)
	for i := range random {
		random[i] = byte(7 * i)
	}
	a := newAtlas(t, kvatlas.Worker{Name: "a", Auto: true})
	sub, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Handler: a.Handler()})
	require.NoError(t, err)
	defer sub.Close()
	var endpoint, replay string
	for i, is := range []struct {
		engine, release string
		seed            blockhash.Seed
		algorithm       blockhash.Algorithm
		mode            kvatlas.Mode
	}{
		{"vllm", "0.20.2", blockhash.SeedRoot(random), blockhash.SHA256, kvatlas.ByContent},
		{"vllm", "0.29.0", blockhash.Seed{}, blockhash.SHA256CBOR, kvatlas.ByHash},
		{"vllm", "0.32.0", blockhash.SeedText("0"), blockhash.XXHash, kvatlas.ByHash},
		{"sglang", "0.5.9", blockhash.Seed{}, blockhash.SHA256, kvatlas.ByHash},
		{"sglang", "0.5.23", blockhash.Seed{}, blockhash.SHA256, kvatlas.ByHash},
		{"vllm", "0.32.0", blockhash.Seed{}, blockhash.SHA256, kvatlas.ByHash},
	} {
		scheme, err := blockhash.SchemeFor(is.engine, is.release)
		require.NoError(t, err)
		hash, err := kveventstest.HashAs(blockhash.Options{Scheme: scheme, Algorithm: is.algorithm, Seed: is.seed, BlockSize: size})
		require.NoError(t, err)
		e, err := kveventstest.Start(kveventstest.Options{
			Engine: is.engine, Release: is.release, BlockSize: size, Blocks: 300, Endpoint: endpoint, Replay: true, ReplayEndpoint: replay,
			Hash: hash,
		})
		require.NoError(t, err)
		if i == 0 {
			endpoint, replay = e.Endpoint(), e.ReplayEndpoint()
			require.NoError(t, sub.Add(kvevents.Target{Worker: "a", Endpoint: endpoint, ReplayEndpoint: replay}))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		require.NoError(t, e.WaitSubscribed(ctx, 1))
		cancel()
		rng := rand.New(rand.NewPCG(uint64(i), 9))
		known := 0
		const prompts = 60
		for n := range prompts {
			ids := make([]uint32, 1+rng.IntN(200))
			text := uint32(rng.IntN(20))
			for j := range ids {
				ids[j] = 100 + text + uint32(j)
				if j > 64 {
					ids[j] += uint32(rng.IntN(2))
				}
			}
			m := matchOn(t, a, "a", blockhash.Prompt{Tokens: ids})
			reported := e.Serve(ids)
			if n == 0 { // what was known of the engine before is still believed, until this one is heard of
				m.Unknown = "not heard of yet"
			}
			if m.Unknown == "" {
				known++
				require.Equal(t, reported, m.Usable, "%s %s, prompt %d of %d tokens", is.engine, is.release, n, len(ids))
			}
			require.Eventually(t, func() bool {
				st := sub.AppendStatus(nil)[0]
				return st.Next == e.Seq() && st.State == kvevents.Live
			}, 20*time.Second, time.Millisecond, "%s %s, prompt %d", is.engine, is.release, n)
		}
		p := profileOf(t, a, "a")
		require.Greater(t, known, prompts-10, fmt.Sprint(p))
		require.Equal(t, is.mode, p.Mode)
		require.Equal(t, size, p.BlockSize)
		require.Contains(t, p.Releases, is.engine)
		if is.mode == kvatlas.ByHash && is.engine == "vllm" {
			require.Equal(t, is.algorithm, p.Algorithm)
			require.Equal(t, is.seed, p.Seed)
		}
		require.NoError(t, e.Close())
	}
}

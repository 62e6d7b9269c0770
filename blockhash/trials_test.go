package blockhash

// Public bug reports of routers and engines as inputs with their right
// outcomes; each test names the report. Vectors marked "published" come from
// the projects named, the others were computed with CPython 3.11.

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func seq(from, to uint32) (ids []uint32) {
	for id := from; id <= to; id++ {
		ids = append(ids, id)
	}
	return ids
}

// hashes returns the digests of a prompt in hex.
func hashes(t testing.TB, h *Hasher, p *Prompt) (list []string) {
	t.Helper()
	d, err := h.AppendDigests(nil, p)
	require.NoError(t, err)
	for ; len(d) > 0; d = d[h.DigestSize():] {
		list = append(list, hex.EncodeToString(d[:h.DigestSize()]))
	}
	return list
}

func keysOf(t testing.TB, h *Hasher, p *Prompt) []uint64 {
	t.Helper()
	keys, err := h.AppendKeys(nil, p)
	require.NoError(t, err)
	return keys
}

func root(t testing.TB, opt Options) string {
	t.Helper()
	opt.BlockSize = 16
	return hex.EncodeToString(mustNew(t, opt).AppendRoot(nil))
}

// vllm-project/vllm#51875: the root of an unset seed was random, and became a
// constant for SHA-256 only.
func TestUnsetSeed(t *testing.T) {
	v29 := mustScheme(t, "0.29.0")
	require.Equal(t, "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198", root(t, Options{Scheme: v29}))
	require.Equal(t, "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0", root(t, Options{Scheme: v29, Algorithm: SHA256CBOR}))
	for _, s := range vllmSchemes() {
		for a := range numAlgorithms {
			_, err := New(Options{Scheme: s, Algorithm: a, BlockSize: 16})
			switch {
			case a.xxh() && !s.era().xxhash:
				require.ErrorIs(t, err, ErrAlgorithm)
			case a.xxh() || !s.era().fixedRoot:
				require.ErrorIs(t, err, ErrRoot, "%v %v", s, a)
				require.Contains(t, err.Error(), "root is not reproducible")
			default:
				require.NoError(t, err)
			}
		}
	}
}

// LMCache/LMCache#1095, dingodb/DingoCache#77: the seed is text, never a number.
func TestSeeds(t *testing.T) {
	for alg, want := range map[Algorithm]map[string]string{
		SHA256: {
			"0":              "1973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c", // published
			"42":             "c0bc02c9fc92a4944335649961b9e55cc41b194bece4801e8c6ef0f0f3f5884a",
			"vllm-none-hash": "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198",
			"00":             "67c61e0f70ad5d3fc0eacb59744008ac6f2a8bd2edad43540a743eaf0fb4993c", // published
			"random":         "fa1326fc0ad784c54e10f808051a77f999f7b675b12fba49cbef92b3e1a09cb7", // published
			"4294967295":     "670c2eca46f5f7e11b9dce5c3bd2ff0e9e19567fd45b50c2db5cc0c9aae470d9", // published
		},
		SHA256CBOR: {
			"0":  "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e", // published
			"42": "9fa6eb003f14425eb9c8e6baacfbcaab26257357b829c7bfa74ffcc4f31c1780",
		},
		XXHash:     {"0": "6fb31cc38bba6066183f7f2104b9c051", "42": "b6cdd80ea04b31ad0b9fc22fff500882"},
		XXHashCBOR: {"0": "1ebe36576dcb573f26b99533a20aaeca" /* published */, "42": "a9d2e63407fce1a26c9dc9d7fa2d7caf"},
	} {
		for seed, digest := range want {
			for _, release := range []string{"0.13.0", "0.31.0"} {
				require.Equal(t, digest, root(t, Options{Scheme: mustScheme(t, release), Algorithm: alg, Seed: SeedText(seed)}))
			}
		}
	}
	// Set, but to nothing, is set.
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.20.2"), BlockSize: 16, Seed: SeedText("")})
	require.NotEqual(t, root(t, Options{Scheme: mustScheme(t, "0.29.0")}), hex.EncodeToString(h.AppendRoot(nil)))
	require.NotEqual(t, Seed{}, SeedText(""))
	require.Equal(t, "80059505000000000000008c0130942e", hex.EncodeToString(encode(&encoder{}, text{s: "0"})))
}

// kvcache-ai/Mooncake#3232: vLLM's default is SHA-256 over pickle. Vectors
// published in its fixtures, made by vLLM 0.22.1rc0 on Python 3.12.
func TestPublishedSHA256(t *testing.T) {
	opt := Options{Scheme: mustScheme(t, "0.22.0"), BlockSize: 4, Seed: SeedText("0")}
	h := mustNew(t, opt)
	require.Equal(t, []string{
		"762b2e7e1520febd3a0aedb7358e8602facf3924440e18538fce057e23bae91d",
		"9e62b5a7ec298f33cb4c7d9e00b659874bb2432d23ad6879ad1746592a2b036b",
		"fd503875de30430b3c7e35f7ecca2fe995f2d55487bfef31707e09b175f917a0",
		"ac30858a66380467632841b758acc6cbe95ff9cfd7b9d226aa33de029248adff",
	}, hashes(t, h, &Prompt{Tokens: seq(1, 16)}))
	require.Equal(t, []uint64{10362225831949560093, 12472515041799373675}, keysOf(t, h, &Prompt{Tokens: seq(1, 8)}))
	message := encode(&encoder{}, list{h.AppendRoot(nil), list{int64(1), int64(2), int64(3), int64(4)}, nil})
	require.Equal(t, "800595320000000000000043201973e23848344dc43a988a9b478663803cfffe1243480253f9a3cf004b14aa7c94284b014b024b034b0474944e87942e",
		hex.EncodeToString(message))

	require.Equal(t, "569de0636f6064532b63312eab095a4577e72dc55286dbfb43821ec866309e47", hashes(t, h, &Prompt{Tokens: []uint32{10, 20, 30, 40}})[0])
	for n, want := range []string{
		"4e7493abc7315520e17ce180ee400439b7dc83e7406fb239462766705eb058c8",
		"aa9e79304bb6921235ea2e187b25f9bb43d9044ec232e3d1c07d7e21e51e64ee",
		"6368e68a46c970c8ec2ebab3eb9d2fe7ddc2730165bb64d698aaed2907396794",
	} {
		opt.BlockSize = n + 1
		require.Equal(t, []string{want}, hashes(t, mustNew(t, opt), &Prompt{Tokens: seq(7, 7+uint32(n))}))
	}
	for i, p := range []Prompt{
		{LoRA: &LoRA{Name: strings.Repeat("a", 255)}}, {LoRA: &LoRA{Name: strings.Repeat("a", 256)}},
		{CacheSalt: strings.Repeat("s", 255)}, {CacheSalt: strings.Repeat("s", 256)},
	} {
		p.Tokens = seq(1, 4)
		require.Equal(t, []string{
			"866b277c9d76457e35bd6a5dd3ec0d5b598faa9e36d108608f6e925149b1524b",
			"0c934ab8aa543128da871a91a46387ed907ed3ca8b39e5c137da510f80a106df",
			"167d69abb219f81883e1fc5e554564bab043051f849914feb058487c8bffc398",
			"0875d6e8c04ec7bb02928dc8f4b9e336aecb8adfae9078a9b6b54fe557b6857d",
		}[i], hashes(t, h, &p)[0])
	}
}

// loxilb-inference-gateway's fixture (published for the CBOR algorithms).
func TestPublishedAlgorithms(t *testing.T) {
	var tokens []uint32
	for i := range uint32(32) {
		tokens = append(tokens, 101*(i+1))
	}
	qwen := []uint32{785, 3974, 13876, 38835, 34208, 916, 279, 15678, 5562, 13, 44801, 2266, 25, 8287, 1411, 27217}
	for alg, want := range map[Algorithm][]any{
		SHA256CBOR: {"d450abdaf2c9ebdd0e0cbfbc4e24a5c07ff71dcab37be7426d4fa0e5fdb93342", uint64(7876691182959014722),
			"0d95d2dc02f528b32afbd33ebffedd911ed1978087b0a01679b4ddd62261c5db", uint64(8769878286166771163)},
		XXHashCBOR: {"363a30eaa81cfc9f9992a6dfe619bda1", uint64(11066090714971094433), "60bf650ad0efa0dc7147140a2e85add6", uint64(8162514883595054550)},
		SHA256: {"7f82767b9d5da0d11d69bbe28ae068e688ab5a0bbe5b0119b70888a8c7c69ead", uint64(13188941767242063533),
			"39c7585e2fca362d7ccd3fd06894b11fb70772b2ba68d3e08edc0bb1cebd1df6", uint64(10294115706567728630)},
		XXHash: {"f2bc2922c751efe9454eee0caed7ce93", uint64(4994190775040855699), "159fa645badf3ff59d892564c3a41edc", uint64(11351645450473316060)},
	} {
		h := mustNew(t, Options{Scheme: mustScheme(t, "0.17.0"), Algorithm: alg, BlockSize: 16, Seed: SeedText("0")})
		p := &Prompt{Tokens: tokens}
		require.Equal(t, []string{want[0].(string), want[2].(string)}, hashes(t, h, p))
		require.Equal(t, []uint64{want[1].(uint64), want[3].(uint64)}, keysOf(t, h, p))
		switch alg {
		case SHA256CBOR:
			require.Equal(t, []string{"caba889d3604b3df8dcdd10e42088879dbda2a1da4d19650da393e3b3c4a3207"}, hashes(t, h, &Prompt{Tokens: qwen}))
			require.Equal(t, []uint64{15724667998076285447}, keysOf(t, h, &Prompt{Tokens: qwen}))
		case XXHashCBOR:
			require.Equal(t, []string{"56f372e4cb22425f4773cdca742d4779"}, hashes(t, h, &Prompt{Tokens: qwen}))
		}
	}
	ids := list{}
	for _, id := range tokens[:16] {
		ids = append(ids, int64(id))
	}
	require.Equal(t, "835820"+strings.Repeat("00", 32)+"90186518ca19012f1901941901f919025e1902c319032819038d1903f21904571904bc1905211905861905eb190650f6",
		hex.EncodeToString(encode(&encoder{cbor: true}, list{make([]byte, 32), ids, nil})))
}

// LMCache/LMCache#2136: no extra keys is None, never an empty tuple.
func TestNothingExtra(t *testing.T) {
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 4, Seed: SeedText("0")})
	for _, p := range []Prompt{{}, {Items: []Item{}}, {Items: []Item{{"far", 4, 9}}}, {CacheSalt: ""}} {
		p.Tokens = seq(1, 4)
		require.Equal(t, []string{"762b2e7e1520febd3a0aedb7358e8602facf3924440e18538fce057e23bae91d"}, hashes(t, h, &p))
	}
}

// llm-d/llm-d-kv-cache#282: the 64-bit form is the last eight bytes, big-endian.
func TestKeyOf(t *testing.T) {
	digest := make([]byte, 32)
	for i := range digest {
		digest[i] = byte(i)
	}
	require.Equal(t, uint64(1736447835066146335), KeyOf(digest))
	require.Equal(t, uint64(0x0102), KeyOf([]byte{1, 2}))
	require.Zero(t, KeyOf(nil))
}

// vllm-project/vllm#27211: the adapter's name counts, not the number it got.
// ai-dynamo/dynamo#6517: base and adapters are namespaces of their own.
func TestAdapters(t *testing.T) {
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.22.0"), BlockSize: 4, Seed: SeedText("0")})
	a := &Prompt{Tokens: seq(1, 8), LoRA: &LoRA{Name: "adapter-A", ID: 117}}
	want := []string{"5c5d9e04e03de9f2f4a9f38766c4d0fb0e207ccf5d2fb3b272c50117f336ae0c", "bde66cc24757972cc88e0fe62079d85934868c2733874ffa1c54ff679604f61a"}
	require.Equal(t, want, hashes(t, h, a))
	a.LoRA.ID = 3
	require.Equal(t, want, hashes(t, h, a))
	a.LoRA.Path = "elsewhere" // counts from 0.31 on
	require.Equal(t, want, hashes(t, h, a))

	for _, s := range vllmSchemes() {
		h := mustNew(t, Options{Scheme: s, BlockSize: 4, Seed: SeedText("0")})
		seen := map[string]bool{}
		for _, l := range []*LoRA{nil, {Name: "a", ID: 1, Path: "p"}, {Name: "b", ID: 2, Path: "p"}} {
			for _, d := range hashes(t, h, &Prompt{Tokens: seq(1, 8), LoRA: l}) {
				require.False(t, seen[d], "%v: %v shares a block", s, l)
				seen[d] = true
			}
		}
		one := hashes(t, h, &Prompt{Tokens: seq(1, 8), LoRA: &LoRA{Name: "a", ID: 1, Path: "p"}})
		two := hashes(t, h, &Prompt{Tokens: seq(1, 8), LoRA: &LoRA{Name: "a", ID: 1, Path: "q"}})
		require.Equal(t, !s.era().tagged, fmt.Sprint(one) == fmt.Sprint(two), "%v: path", s)
	}
}

// llm-d/llm-d-kv-cache#444, LMCache/LMCache#690: items keep equal placeholder
// tokens apart, by their whole identifier.
func TestItems(t *testing.T) {
	id := strings.Repeat("0", 60) + "abcd"
	other := strings.Repeat("1", 60) + "abcd"
	for _, s := range vllmSchemes() {
		h := mustNew(t, Options{Scheme: s, BlockSize: 16, Seed: SeedText("0")})
		tokens := make([]uint32, 96) // text, text, then 64 placeholders
		a := hashes(t, h, &Prompt{Tokens: tokens, Items: []Item{{id, 32, 64}}})
		b := hashes(t, h, &Prompt{Tokens: tokens, Items: []Item{{other, 32, 64}}})
		require.Equal(t, a[:2], b[:2], "text before the item is shared")
		for i := 2; i < len(a); i++ {
			require.NotEqual(t, a[i], b[i])
		}
	}
}

// llm-d/llm-d-router#1501: nothing to hash is an empty result, not an error.
func TestNoBlocks(t *testing.T) {
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 16})
	for _, p := range []*Prompt{{}, {Tokens: seq(1, 15)}, {CacheSalt: "s", Items: []Item{{"i", 0, 3}}}} {
		keys, err := h.AppendKeys(nil, p)
		require.NoError(t, err)
		require.Empty(t, keys)
	}
}

// llm-d/llm-d-router#1389, smg-project/smg#2420: the salt is in the first
// block only; empty is none; a space is a salt.
func TestSalt(t *testing.T) {
	h := mustNew(t, Options{Scheme: mustScheme(t, "0.22.0"), BlockSize: 4, Seed: SeedText("0")})
	require.Equal(t, []string{
		"373c09c29ab08b91b13bf1a67e0a461990572d476016c064b6ba6b75c163ceb1",
		"141900dd6fe59d22764357a125ecf4d670923bb12ad705a520de0e98c7338d5d",
	}, hashes(t, h, &Prompt{Tokens: seq(1, 8), CacheSalt: "tenant-salt"}))
	require.Equal(t, []string{
		"dacd8a5addba8cf4b89589bedab04999b3676299a455ba3e085cc7777be6b328",
		"55575bd9b63ced6a3dc36c355afbb5f551599533795c26d27d8b5fc836681618",
	}, hashes(t, h, &Prompt{Tokens: seq(1, 8), CacheSalt: "tenant-salt", LoRA: &LoRA{Name: "adapter-A"}}))
	plain := hashes(t, h, &Prompt{Tokens: seq(1, 8)})
	require.Equal(t, plain, hashes(t, h, &Prompt{Tokens: seq(1, 8), CacheSalt: ""}))
	require.NotEqual(t, plain[0], hashes(t, h, &Prompt{Tokens: seq(1, 8), CacheSalt: " "})[0])
}

// vllm-project/vllm#28738: the digest of the embeddings is in the hash as raw
// bytes, and different payloads hash differently from 0.11.2 on.
func TestEmbeddings(t *testing.T) {
	one, two := make([]byte, 8*4), make([]byte, 8*4)
	two[31] = 1
	for _, s := range vllmSchemes() {
		h := mustNew(t, Options{Scheme: s, BlockSize: 4, Seed: SeedText("0")})
		a := hashes(t, h, &Prompt{Tokens: make([]uint32, 8), Embeds: &Embeds{one, 4}})
		b := hashes(t, h, &Prompt{Tokens: make([]uint32, 8), Embeds: &Embeds{two, 4}})
		require.Equal(t, a[0], b[0])
		require.Equal(t, s.era().embeds == embedsIgnored, a[1] == b[1], s)
	}
}

package kvatlas

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents/parity"
	"github.com/kvatlas/kvatlas/radix"
)

const sglang = "sglang"

// describe compiles the description of a worker: where its blocks go, by the
// engine's hash where it can be computed, by content where the root is random.
func (w *worker) describe([]blockhash.Seed) (*residence, error) {
	if err := w.checkEngine(); err != nil {
		return nil, err
	}
	scheme, err := blockhash.SchemeFor(w.Engine, w.Release)
	if err != nil && w.Release == "" && !w.documented() {
		return nil, fmt.Errorf("%w; give Release, or set Auto to find it from events", err)
	}
	if err != nil {
		return nil, err
	}
	if w.Cache.HashUnit == 0 {
		w.Cache.HashUnit = w.BlockSize
	}
	unit := w.Cache.HashUnit
	if unit < 1 {
		return nil, fmt.Errorf("%w, or Auto, which finds it from events: got %d", ErrBlockSize, unit)
	}
	if w.BlockSize%unit != 0 || w.BlockSize < 0 {
		return nil, fmt.Errorf("%w: block size %d is not a multiple of the hash unit %d", ErrBlockSize, w.BlockSize, unit)
	}
	w.Cache.Release = w.Release
	profile, err := w.profile(w.Engine, w.Release, unit, w.Cache.Lookahead)
	if err != nil {
		return nil, err
	}
	key := domainKey{scheme: scheme, algorithm: w.Algorithm, seed: w.Seed, unit: unit, lookahead: w.Cache.Lookahead}
	switch {
	case w.documented():
		key, err = w.documentedKey(key)
		return &residence{key: key, profile: profile}, err
	case w.Engine == sglang && scheme.Through() == "0.4.7":
		key = w.byContent(key)
		key.nodes = true
		return &residence{key: key, profile: profile}, nil
	case w.Engine == sglang:
		key.eagle, key.dynamo = w.Cache.Eagle, w.DynamoEvents
	}
	if _, err = key.hasher(0); errors.Is(err, blockhash.ErrRoot) && w.Seed == (blockhash.Seed{}) {
		return &residence{key: w.byContent(key), profile: profile}, nil
	}
	if err != nil {
		return nil, err
	}
	dynamo := parity.No
	if w.DynamoEvents {
		dynamo = parity.Yes
	}
	hashBlock := 0 // events tell
	if len(w.Cache.Groups) > 1 {
		hashBlock = unit
	}
	err = w.monitored(parity.Options{
		Engine: w.Engine, Release: w.Release, Seeds: []blockhash.Seed{w.Seed}, HashBlockSize: hashBlock, Dynamo: dynamo, PlainOnly: w.PlainOnly,
		Algorithms: []blockhash.Algorithm{w.Algorithm, blockhash.SHA256, blockhash.SHA256CBOR, blockhash.XXHash, blockhash.XXHashCBOR},
	})
	w.described = residence{key: key, profile: profile}
	w.history.on = w.tellsContent(scheme)
	return &residence{key: key, profile: profile}, err
}

// byContent is the key of the same blocks by content.
func (w *Worker) byContent(key domainKey) domainKey {
	return domainKey{scheme: key.scheme, unit: key.unit, lookahead: key.lookahead, content: true, plainOnly: w.PlainOnly}
}

// checkEngine refuses what the engine does not have.
func (w *Worker) checkEngine() error {
	if err := w.checkLMCache(); err != nil {
		return err
	}
	switch {
	case w.Auto && w.documented():
		return fmt.Errorf("%w: an automatic worker of %s: give Release and BlockSize, and not Auto", ErrUnsupported, w.Engine)
	case w.Engine != "vllm" && w.Engine != sglang && !w.documented() && !(w.Auto && w.Engine == ""):
		return fmt.Errorf("%w: engine %s; known are vllm, sglang, and from documents %s", ErrUnsupported, quoted(w.Engine), FromDocuments)
	case w.XXH3Seed != 0 && w.Engine != dynamo && w.Engine != mooncake:
		return fmt.Errorf("%w: XXH3Seed is of dynamo and mooncake", ErrUnsupported)
	case w.DynamoEvents && w.Engine != sglang:
		return fmt.Errorf("%w: DynamoEvents is an option of SGLang", ErrUnsupported)
	case w.Engine != sglang:
		return nil
	case w.Seed != (blockhash.Seed{}):
		return fmt.Errorf("%w: a Seed of SGLang, whose hashes have none", ErrUnsupported)
	case len(w.Cache.Groups) > 0 || w.Cache.Connector != radix.NoConnector:
		return fmt.Errorf("%w: cache groups and connectors of SGLang", ErrUnsupported)
	}
	if scheme, err := blockhash.SchemeFor(sglang, w.Release); err == nil && scheme.Through() == "0.4.7" && w.Cache.Eagle {
		return fmt.Errorf("%w: EAGLE in SGLang before 0.4.8", ErrUnsupported)
	}
	return nil
}

// profile compiles what decides a hit.
func (w *Worker) profile(engine, release string, unit, lookahead int) (*radix.Profile, error) {
	o := w.Cache
	o.Release, o.HashUnit, o.Lookahead = release, unit, lookahead
	if w.documented() {
		return w.documentedProfile()
	}
	if engine == sglang {
		// Its one rule: whole pages from the start, the last token left out. EAGLE
		// is in the pages, not in the rule.
		o = radix.ProfileOptions{HashUnit: unit, Copies: o.Copies, Clear: o.Clear}
	}
	return radix.NewProfile(o)
}

// limitation names what an engine's release gets wrong in its events, so that no
// consumer can be right; empty for most.
func (w *worker) limitation() string {
	const splits = "SGLang 0.5.6 removes the pages of a node that it splits and does not announce them again: matches are too low"
	if release, _, _ := strings.Cut(strings.TrimPrefix(w.Release, "v"), "post"); w.Engine == sglang && strings.TrimSuffix(release, ".") == "0.5.6" {
		return splits
	}
	if w.Release == "" {
		for _, e := range w.found.Eras {
			if e.Scheme.Engine() == sglang && e.Since == "0.5.6" {
				return "if the engine is " + splits
			}
		}
	}
	return ""
}

// assumed tells whether the release is newer than every one that was checked.
func (w *worker) assumed() bool {
	scheme, err := blockhash.SchemeFor(cmp.Or(w.Engine, "vllm"), w.Release)
	return err == nil && scheme.Assumed()
}

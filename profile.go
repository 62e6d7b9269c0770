package kvatlas

import (
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents/parity"
	"github.com/kvatlas/kvatlas/radix"
)

// Profile is what is known of a worker's engine, from its description or, of an
// automatic worker, from its events. The zero value is nothing.
type Profile struct {
	// Known says that blocks of the worker are matched, by hash or by content as Mode
	// says. Otherwise Reason says why not.
	Known  bool
	Mode   Mode
	Reason string
	// Releases are those that the events can be of, such as "vllm from 0.29.0,
	// before 0.31.0"; empty while nothing was seen.
	Releases string
	// Scheme, Algorithm, Seed, BlockSize, Lookahead, EAGLE and DynamoEvents are how
	// prompts are hashed for the worker. Among releases that hash alike what was
	// seen, Scheme is any of them. By content there are no Algorithm and Seed.
	// EAGLE is SGLang's, whose pages are of pairs then.
	Scheme              blockhash.Scheme
	Algorithm           blockhash.Algorithm
	Seed                blockhash.Seed
	BlockSize           int
	Lookahead           int
	EAGLE, DynamoEvents bool
	// Copies is how repeated announcements are read: as the description says, which
	// is Count for the engines that are found.
	Copies radix.CopyPolicy
	// Open are the features that the releases hash in different ways: prompts with
	// one are unknown until a block of one was announced.
	Open blockhash.Features
}

// Profile returns what is known of a worker's engine. The error is
// [ErrUnknownWorker].
func (a *Atlas) Profile(name string) (Profile, error) {
	var p Profile
	err := a.onWorker(name, func(w *worker) error {
		p = w.profileNow()
		return nil
	})
	return p, err
}

func (w *worker) profileNow() Profile {
	p := Profile{Reason: w.unknown(), Releases: parity.Releases(w.found.Eras), Copies: w.Cache.Copies}
	at := w.at.Load()
	if at == nil {
		if p.Reason == "" {
			p.Reason = unknownYet
		}
		return p
	}
	k := at.domain.key
	p.Known, p.Mode, p.Open = p.Reason == "", at.mode, at.open
	p.Scheme, p.Algorithm, p.Seed, p.BlockSize, p.Lookahead = k.scheme, k.algorithm, k.seed, k.unit, k.lookahead
	p.EAGLE, p.DynamoEvents = k.eagle, k.dynamo
	return p
}

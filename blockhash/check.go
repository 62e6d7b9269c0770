package blockhash

import (
	"math"
	"unicode/utf8"
)

// maxPosition bounds positions in a prompt, so that sums of two do not overflow
// an int of 32 bits.
const maxPosition = math.MaxInt32 / 2

// check refuses prompts that the scheme's engine could not have hashed.
func (h *Hasher) check(p *Prompt) error {
	if !h.made() {
		return errHasher
	}
	if p.tokensAlone() && h.era.family == familyVLLM {
		return nil // nearly all prompts
	}
	if err := checkPrompt(p); err != nil {
		return err
	}
	switch {
	case h.era.family == familyVLLM:
		return checkLoRA(p.LoRA, h.era)
	case h.era.family == familySGLang:
		return h.checkSGLang(p)
	case h.era.family == familySeq:
		return h.checkSeq(p)
	case h.opt.Algorithm == BLAKE3:
		return h.checkHashed(p)
	}
	return nil
}

// tokensAlone reports whether there is nothing to check in a prompt.
func (p *Prompt) tokensAlone() bool {
	return p != nil && len(p.Tokens) <= maxPosition && len(p.WideTokens) == 0 &&
		p.LoRA == nil && p.CacheSalt == "" && len(p.Items) == 0 && p.Embeds == nil
}

// made reports whether h came from New.
func (h *Hasher) made() bool { return h != nil && h.era != nil }

var errHasher = optionError("the Hasher is nil or zero: make it with New")

// checkLoRA refuses adapters that vLLM does not have, as far as it hashes what
// is wrong with them (vllm/lora/request.py, LoRARequest.__post_init__: ids from
// 1, a path; vllm/entrypoints/openai/models/serving.py: a name).
func checkLoRA(l *LoRA, e *era) error {
	switch {
	case l == nil:
	case e.loraID && l.ID < 1:
		return promptError("LoRA", -1, "the adapter's id is %d: this release hashes it, and ids start at 1", l.ID)
	case !e.loraID && l.Name == "":
		return promptError("LoRA", -1, "the adapter has no name: this release hashes it, and every adapter has one")
	case e.tagged && l.Path == "":
		return promptError("LoRA", -1, "the adapter has no path: this release hashes it; set it, or key the prompt by content")
	}
	return nil
}

// checkPlain refuses what the scheme's engine would hash in a way that is not
// known here.
func (h *Hasher) checkPlain(p *Prompt) error {
	switch {
	case len(p.Items) > 0:
		return promptError("Items", -1, "%v has no rule for items: give the ids that the engine puts in their place", h.opt.Scheme)
	case p.Embeds != nil:
		return promptError("Embeds", -1, "%v has no rule for prompt embeddings", h.opt.Scheme)
	}
	return h.checkHashed(p)
}

// checkHashed refuses ids that this scheme cannot hold, among those that are
// in a full block and so will be hashed.
func (h *Hasher) checkHashed(p *Prompt) error {
	if len(p.WideTokens) == 0 {
		return nil
	}
	hashed := len(p.WideTokens) / h.opt.BlockSize * h.opt.BlockSize
	if h.opt.EAGLE {
		hashed = len(p.WideTokens)
	}
	return checkUint32(p.WideTokens[:hashed])
}

// checkUint32 refuses ids that an engine which hashes them as u32 cannot hold.
func checkUint32(ids []int64) error {
	for i, id := range ids {
		if id < 0 || id > math.MaxUint32 {
			return promptError("WideTokens", i, "id %d: this scheme hashes ids of 0 to 2^32-1", id)
		}
	}
	return nil
}

// checkPrompt refuses prompts that no engine could not have hashed.
func checkPrompt(p *Prompt) error {
	if p == nil {
		return promptError("Tokens", -1, "the prompt is nil")
	}
	if len(p.Tokens) > 0 && len(p.WideTokens) > 0 {
		return promptError("WideTokens", -1, "Tokens and WideTokens are both set: set one")
	}
	if n := p.Len(); n > maxPosition {
		return promptError("Tokens", -1, "%d tokens: at most %d are accepted", n, maxPosition)
	}
	if l := p.LoRA; l != nil {
		if err := checkText("LoRA", -1, "name", l.Name); err != nil {
			return err
		}
		if err := checkText("LoRA", -1, "path", l.Path); err != nil {
			return err
		}
	}
	if err := checkText("CacheSalt", -1, "salt", p.CacheSalt); err != nil {
		return err
	}
	if err := checkItems(p.Items); err != nil {
		return err
	}
	return checkEmbeds(p.Embeds)
}

// checkText refuses text that is not UTF-8: no Python str that reaches an
// engine encodes to it. Measured with CPython 3.11.7: of a str with a lone
// surrogate pickle writes ED A0..BF xx, but cbor2 6.3 cannot encode it, and
// neither can msgspec 0.23, by which vLLM's front end hands requests to the
// engine; nor does JSON decoding by msgspec let one in.
func checkText(field string, index int, what, s string) error {
	if !utf8.ValidString(s) {
		return promptError(field, index, "the %s is not valid UTF-8; no engine string has such bytes", what)
	}
	if len(s) > math.MaxInt32 {
		return promptError(field, index, "the %s has %d bytes", what, len(s))
	}
	return nil
}

func checkItems(items []Item) error {
	end := 0
	for i := range items {
		it := &items[i]
		switch {
		case it.Offset < 0 || it.Offset > maxPosition:
			return promptError("Items", i, "offset is %d: want 0 to %d", it.Offset, maxPosition)
		case it.Length < 0 || it.Length > maxPosition:
			return promptError("Items", i, "length is %d: want 0 to %d", it.Length, maxPosition)
		case i > 0 && it.Offset < items[i-1].Offset:
			return promptError("Items", i, "offset %d comes before offset %d of the item before: sort items by offset",
				it.Offset, items[i-1].Offset)
		case it.Offset < end:
			return promptError("Items", i, "offset %d is inside the item before, which ends at %d: items must not overlap",
				it.Offset, end)
		}
		if err := checkText("Items", i, "identifier", it.Identifier); err != nil {
			return err
		}
		end = it.Offset + it.Length
	}
	return nil
}

func checkEmbeds(em *Embeds) error {
	switch {
	case em == nil:
		return nil
	case em.BytesPerToken < 1:
		return promptError("Embeds", -1, "BytesPerToken is %d: want at least 1", em.BytesPerToken)
	case len(em.Data)%em.BytesPerToken != 0:
		return promptError("Embeds", -1, "%d bytes are not a whole number of tokens of %d bytes",
			len(em.Data), em.BytesPerToken)
	}
	return nil
}

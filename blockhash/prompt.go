package blockhash

// Prompt is what an engine hashes of one request. Hashing reads it and keeps
// no reference after an append function returns; a [Chain] refers to it until
// it is started anew. Only Tokens is required.
type Prompt struct {
	// Tokens are the ids of the prompt, as the engine made them.
	Tokens []uint32
	// WideTokens replaces Tokens when an id is negative (a placeholder) or
	// larger than 2^32-1. Setting both is an error.
	WideTokens []int64
	// LoRA is the adapter of the request, nil for the base model.
	LoRA *LoRA
	// CacheSalt is the request's cache_salt. Empty means none; one space is a
	// salt.
	CacheSalt string
	// Items are the multimodal inputs, by ascending offset, not overlapping.
	Items []Item
	// Embeds are prompt embeddings, nil for a prompt of tokens.
	Embeds *Embeds
	// ExtraKey is SGLang's extra_key as the server has it, which for an
	// adapter ends in the random id it got. Other engines have none. It is in
	// no hash but those of Options.DynamoEvents, and of adapters from 0.5.23.
	ExtraKey string
}

// LoRA names an adapter as the engine knows it. Which of the fields count
// depends on the release: vLLM hashes ID to 0.11.0, Name from 0.11.2, Name and
// Path from 0.31. Those that count must be set, as they are in every engine: an
// ID of 1 or more, a Name, a Path.
type LoRA struct {
	Name string
	Path string
	ID   int64
}

// Item is one multimodal input of a prompt.
type Item struct {
	// Identifier is the engine's name of the content, by default the hex
	// digest of image, audio or video (mm_features[i].identifier in vLLM), or
	// what the client gave for it, which may be empty: vLLM 0.32 takes that as
	// it is.
	Identifier string
	// Offset and Length are the tokens it takes, from the prompt's start.
	Offset, Length int
}

// Embeds are prompt embeddings as bytes: the tensor of shape (tokens, hidden),
// row-major, little-endian, as it is in the engine's memory.
type Embeds struct {
	Data []byte
	// BytesPerToken is hidden size times the size of the data type.
	BytesPerToken int
}

// Len returns the number of token ids, 0 for a nil Prompt.
func (p *Prompt) Len() int {
	if p == nil {
		return 0
	}
	return max(len(p.Tokens), len(p.WideTokens))
}

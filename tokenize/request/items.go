package request

import (
	"fmt"

	"github.com/kvatlas/kvatlas/tokenize/remote"
)

// AppendItem adds one multimodal item to a prompt's items for the hash, from
// where its placeholder tokens lie and the identifier that the engine gives
// its content: vLLM's mm_features[i].identifier, by default the hex digest of
// the decoded content, or the uuid of the content part where the client gave
// one. It is for engines without a render endpoint, whose placeholders the
// caller knows otherwise: by the model's processor, or by earlier answers for
// the same content. tokens is the length of the prompt.
//
// Items must come by ascending offset and not overlap; the error says what is
// wrong, and items is returned unchanged then. The fields are those of
// blockhash.Item.
func AppendItem(items []remote.Item, identifier string, offset, length, tokens int) ([]remote.Item, error) {
	end := 0
	if n := len(items); n > 0 {
		end = items[n-1].Offset + items[n-1].Length
	}
	switch {
	case identifier == "":
		return items, fmt.Errorf("request: item without identifier")
	case offset < end || length <= 0:
		return items, fmt.Errorf("request: item at %d of length %d: want an offset of at least %d and a positive length", offset, length, end)
	case length > tokens-offset:
		return items, fmt.Errorf("request: item at %d of length %d is beyond the prompt's %d tokens", offset, length, tokens)
	}
	return append(items, remote.Item{Identifier: identifier, Offset: offset, Length: length}), nil
}

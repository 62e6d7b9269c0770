package request

import (
	"fmt"
	"strings"
)

// Endpoint is a kind of request that an engine takes.
type Endpoint uint8

// The endpoints that are known. The zero value is none.
const (
	Completions     Endpoint = iota + 1 // /v1/completions
	ChatCompletions                     // /v1/chat/completions
	Responses                           // /v1/responses
	Messages                            // /v1/messages, Anthropic's
	Embeddings                          // /v1/embeddings
	Pooling                             // /pooling
	Classify                            // /classify
	Score                               // /score, /v1/score
	Rerank                              // /rerank, /v1/rerank, /v2/rerank
	Generate                            // /inference/v1/generate, vLLM's for token ids
	endpoints
)

var endpointOf = map[string]Endpoint{
	"/v1/completions": Completions, "/v1/chat/completions": ChatCompletions, "/v1/responses": Responses,
	"/v1/messages": Messages, "/v1/embeddings": Embeddings, "/pooling": Pooling, "/classify": Classify,
	"/score": Score, "/v1/score": Score, "/rerank": Rerank, "/v1/rerank": Rerank, "/v2/rerank": Rerank,
	"/inference/v1/generate": Generate,
}

var endpointNames = [endpoints]string{"none", "completions", "chat", "responses", "messages", "embeddings", "pooling", "classify", "score", "rerank", "generate"}

// String returns a short name, for labels of metrics.
func (e Endpoint) String() string {
	if e < endpoints {
		return endpointNames[e]
	}
	return fmt.Sprintf("Endpoint(%d)", uint8(e))
}

// EndpointOf returns the endpoint of a URL path. A slash at its end and a
// query do not matter; a prefix that a gateway adds must be cut off first.
func EndpointOf(path string) (Endpoint, bool) {
	path, _, _ = strings.Cut(path, "?")
	e, ok := endpointOf[strings.TrimSuffix(path, "/")]
	return e, ok
}

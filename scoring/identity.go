package scoring

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// SessionID finds the identity of a conversation as LiteLLM does, the first of:
//
//  1. x-litellm-trace-id, then x-litellm-session-id;
//  2. any header x-<vendor>-session-id whose value has at least 8 alphanumeric
//     ASCII characters; of several the first by name;
//  3. for a Codex user agent only: session-id, session_id, thread-id,
//     conversation_id;
//  4. x-session-id;
//  5. metadataUserID, the body's metadata.user_id in Anthropic's form: what
//     follows "_session_" in it, or session_id where it is a JSON object;
//  6. session.id in the W3C baggage header.
//
// Header names are matched in any case; an [net/http.Header] can be passed. Empty
// values do not count. It returns "" where there is none. Source: LiteLLM proxy
// pre-call utilities, September 2026.
func SessionID(header map[string][]string, metadataUserID string) string {
	get := func(name string) string {
		for k, v := range header {
			if len(v) > 0 && strings.EqualFold(k, name) {
				return strings.TrimSpace(v[0])
			}
		}
		return ""
	}
	for _, name := range []string{"x-litellm-trace-id", "x-litellm-session-id"} {
		if v := get(name); v != "" {
			return v
		}
	}
	if v := vendorSession(header); v != "" {
		return v
	}
	if strings.Contains(strings.ToLower(get("user-agent")), "codex") {
		for _, name := range []string{"session-id", "session_id", "thread-id", "conversation_id"} {
			if v := get(name); v != "" {
				return v
			}
		}
	}
	if v := get("x-session-id"); v != "" {
		return v
	}
	if v := anthropicSession(metadataUserID); v != "" {
		return v
	}
	return baggage(get("baggage"), "session.id")
}

// vendorSession finds a header like x-claude-code-session-id.
func vendorSession(header map[string][]string) string {
	var names []string
	for k, v := range header {
		l := strings.ToLower(k)
		vendor, ok := strings.CutSuffix(l, "-session-id")
		if !ok || len(v) == 0 || len(vendor) < len("x-")+1 || !strings.HasPrefix(vendor, "x-") || l == "x-litellm-session-id" {
			continue
		}
		if alphanumerics(v[0]) >= 8 {
			names = append(names, k)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	return strings.TrimSpace(header[names[0]][0])
}

func alphanumerics(s string) (n int) {
	for i := range len(s) {
		if c := s[i] | 0x20; c >= 'a' && c <= 'z' || s[i] >= '0' && s[i] <= '9' {
			n++
		}
	}
	return n
}

func anthropicSession(userID string) string {
	if i := strings.LastIndex(userID, "_session_"); i >= 0 {
		return userID[i+len("_session_"):]
	}
	if strings.HasPrefix(strings.TrimSpace(userID), "{") {
		var v struct {
			SessionID string `json:"session_id"`
		}
		if json.Unmarshal([]byte(userID), &v) == nil {
			return v.SessionID
		}
	}
	return ""
}

// baggage returns a value of a W3C baggage header, percent-decoded.
func baggage(header, key string) string {
	for member := range strings.SplitSeq(header, ",") {
		member, _, _ = strings.Cut(member, ";") // properties
		k, v, ok := strings.Cut(member, "=")
		if !ok || strings.TrimSpace(k) != key {
			continue
		}
		v = strings.TrimSpace(v)
		if decoded, err := url.PathUnescape(v); err == nil {
			return decoded
		}
		return v
	}
	return ""
}

// HashAPIKey returns the hex SHA-256 of an API key, for [Pins.APIKey]. A value
// that already is one (64 hex digits) stays, in lower case, as in LiteLLM. An
// empty key stays empty.
func HashAPIKey(key string) string {
	if key == "" {
		return ""
	}
	if len(key) == 64 {
		if _, err := hex.DecodeString(key); err == nil {
			return strings.ToLower(key)
		}
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// PromptPin returns the hex SHA-256 of everything in a request body up to the
// last block marked with cache_control, for [Pins.Prompt]: the tools, the system
// prompt and the messages, in this order, each as JSON with sorted keys. ok is
// false where nothing is marked or the body is not a JSON object. It is safe on
// untrusted input; its cost is that of decoding the body.
func PromptPin(body []byte) (key string, ok bool) {
	var v struct {
		Tools    []any `json:"tools"`
		System   any   `json:"system"`
		Messages []any `json:"messages"`
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return "", false
	}
	var p pinWriter
	p.list("tools", v.Tools)
	if blocks, ok := v.System.([]any); ok {
		p.list("system", blocks)
	} else if v.System != nil {
		p.write("system", v.System)
	}
	for _, m := range v.Messages {
		message, _ := m.(map[string]any)
		content, _ := message["content"].([]any)
		if len(content) == 0 {
			p.block("message", m)
			continue
		}
		// The message without its content, then block by block: the last
		// marked block may be in the middle of a message.
		head := make(map[string]any, len(message))
		for k, v := range message {
			if k != "content" && k != "cache_control" {
				head[k] = v
			}
		}
		p.write("message", head)
		p.list("content", content)
		if message["cache_control"] != nil {
			p.mark()
		}
	}
	if p.marked == 0 {
		return "", false
	}
	sum := sha256.Sum256(p.buf[:p.marked])
	return hex.EncodeToString(sum[:]), true
}

// pinWriter collects blocks and remembers where the last marked one ends.
type pinWriter struct {
	buf    []byte
	marked int
}

func (p *pinWriter) write(kind string, v any) {
	j, err := json.Marshal(v)
	if err != nil {
		return // what was decoded can be encoded
	}
	p.buf = append(append(append(append(p.buf, kind...), ' '), j...), '\n')
}

func (p *pinWriter) mark() { p.marked = len(p.buf) }

func (p *pinWriter) block(kind string, v any) {
	p.write(kind, v)
	if m, ok := v.(map[string]any); ok && m["cache_control"] != nil {
		p.mark()
	}
}

func (p *pinWriter) list(kind string, blocks []any) {
	for _, b := range blocks {
		p.block(kind, b)
	}
}

package conductor

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/kvatlas/kvatlas/internal/jsonscan"
)

// DefaultTenant is the tenant of a query that names none.
const DefaultTenant = "default"

// Query is the body of a request. Model, TokenIDs and BlockSize are required.
type Query struct {
	Model string `json:"model"`
	// LoRAName is the adapter, empty for the base model; LoRAID its number, for
	// engines that go by that, in place of the name.
	LoRAName string `json:"lora_name,omitempty"`
	LoRAID   *int64 `json:"lora_id,omitempty"`
	// TokenIDs is the prompt.
	TokenIDs []uint32 `json:"token_ids"`
	// Tenant is empty for [DefaultTenant].
	Tenant string `json:"tenant_id,omitempty"`
	// Instance is the only one to look at; empty means all.
	Instance string `json:"instance_id,omitempty"`
	// BlockSize is in tokens.
	BlockSize int `json:"block_size"`
	// CacheSalt is the request's.
	CacheSalt string `json:"cache_salt,omitempty"`
}

// Answer has what each tenant's instances hold, by tenant and instance.
type Answer map[string]map[string]Instance

// Instance is what one instance holds of a prompt, in tokens.
type Instance struct {
	// Longest is the most of all ranks.
	Longest int
	// Media are by name: GPU, CPU, DISK and what else there is.
	Media map[string]int
	// DP are the data-parallel ranks.
	DP map[int32]int
}

// MarshalJSON writes the documented form: the media stand beside longest_matched.
func (i Instance) MarshalJSON() ([]byte, error) {
	fields := map[string]any{}
	for name, tokens := range i.Media {
		fields[name] = tokens
	}
	ranks := i.DP
	if ranks == nil {
		ranks = map[int32]int{}
	}
	fields["longest_matched"], fields["DP"] = i.Longest, ranks
	return json.Marshal(fields)
}

// UnmarshalJSON reads it, whatever the case of the names. Fields that are no number of
// tokens are passed over.
func (i *Instance) UnmarshalJSON(text []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	*i = Instance{Media: map[string]int{}}
	for name, raw := range fields {
		switch name = strings.ToUpper(name); name {
		case "DP":
			if err := json.Unmarshal(raw, &i.DP); err != nil {
				return err
			}
		case "LONGEST_MATCHED":
			if err := json.Unmarshal(raw, &i.Longest); err != nil {
				return err
			}
		default:
			if tokens, err := strconv.Atoi(string(raw)); err == nil {
				i.Media[name] = tokens
			}
		}
	}
	return nil
}

// merge adds what a rank holds.
func (i *Instance) merge(rank int32, combined int, media map[string]int) {
	i.DP[rank] = max(i.DP[rank], combined)
	i.Longest = max(i.Longest, combined)
	for name, tokens := range media {
		i.Media[name] = max(i.Media[name], tokens)
	}
}

// Error is an answer that is none: what was wrong with the request.
type Error struct {
	// Status is that of HTTP; it is not in the body.
	Status int `json:"-"`
	// Message is for people.
	Message string `json:"error"`
	// Reason is "missing", "invalid_type", "invalid_value", "out_of_range",
	// "unknown_field", "invalid_json" or "not_array".
	Reason string `json:"reason,omitempty"`
	// Field is the one at fault, Index the place in its list.
	Field string `json:"field,omitempty"`
	Index *int   `json:"index,omitempty"`
}

func (e *Error) Error() string {
	return fmt.Sprintf("conductor: status %d: %s", e.Status, e.Message)
}

const badRequest = 400

func bad(reason, field, message string) *Error {
	return &Error{Status: badRequest, Message: message, Reason: reason, Field: field}
}

// parse reads the body of a request into q, whose tokens it reuses.
func parse(body string, q *Query) *Error {
	*q = Query{TokenIDs: q.TokenIDs[:0], Tenant: DefaultTenant}
	s := jsonscan.New(body)
	if s.Peek() != '{' {
		return bad("invalid_json", "", "the body is no JSON object")
	}
	seen := map[string]bool{}
	err := s.Object(func(key string) error {
		seen[key] = true
		switch key {
		case "model":
			return text(s, key, &q.Model)
		case "lora_name":
			return text(s, key, &q.LoRAName)
		case "tenant_id":
			return text(s, key, &q.Tenant)
		case "instance_id":
			return text(s, key, &q.Instance)
		case "cache_salt":
			return text(s, key, &q.CacheSalt)
		case "lora_id":
			if q.LoRAID = nil; s.Peek() == 'n' {
				_, err := s.Raw()
				return err
			}
			q.LoRAID = new(int64)
			return integer(s, key, q.LoRAID, math.MinInt64, math.MaxInt64)
		case "block_size":
			var v int64
			err := integer(s, key, &v, 1, math.MaxInt32)
			q.BlockSize = int(v)
			return err
		case "token_ids":
			return tokens(s, q)
		}
		return bad("unknown_field", key, "field "+strconv.Quote(key)+" is not known")
	})
	if e, ok := err.(*Error); ok {
		return e
	}
	if err != nil || !s.End() {
		return bad("invalid_json", "", "the body is no JSON object")
	}
	for _, field := range []string{"model", "token_ids", "block_size"} {
		if !seen[field] {
			return bad("missing", field, field+" is missing")
		}
	}
	switch {
	case q.Model == "":
		return bad("invalid_value", "model", "model is empty")
	case q.LoRAID != nil && q.LoRAName != "":
		return bad("invalid_value", "lora_id", "lora_id beside lora_name")
	}
	if q.Tenant == "" {
		q.Tenant = DefaultTenant
	}
	return nil
}

// text reads a text; null is an empty one.
func text(s *jsonscan.Scanner, field string, to *string) error {
	switch s.Peek() {
	case '"':
		v, err := s.Str()
		*to = strings.Clone(v)
		return err
	case 'n':
		_, err := s.Raw()
		return err
	}
	return bad("invalid_type", field, field+" is no text")
}

func integer(s *jsonscan.Scanner, field string, to *int64, least, most int64) error {
	raw, err := s.Raw()
	if err != nil {
		return err
	}
	v, err := strconv.ParseInt(raw, 10, 64)
	if err != nil {
		return bad("invalid_type", field, field+" is no whole number")
	}
	if *to = v; v < least || v > most {
		return bad("out_of_range", field, fmt.Sprintf("%s is %d, want %d to %d", field, v, least, most))
	}
	return nil
}

func tokens(s *jsonscan.Scanner, q *Query) error {
	if s.Peek() != '[' {
		return bad("not_array", "token_ids", "token_ids is no list")
	}
	q.TokenIDs = q.TokenIDs[:0]
	return s.Array(func() error {
		start := s.Pos()
		if id, err := s.Number(); err == nil && (s.Peek() == ',' || s.Peek() == ']') {
			q.TokenIDs = append(q.TokenIDs, id)
			return nil
		}
		s.Seek(start)
		index := len(q.TokenIDs)
		raw, err := s.Raw()
		if err != nil {
			return err
		}
		e := bad("invalid_type", "token_ids", fmt.Sprintf("token_ids[%d] is no whole number", index))
		if _, err := strconv.ParseFloat(raw, 64); err == nil && !strings.ContainsAny(raw, ".eE") {
			e = bad("out_of_range", "token_ids", fmt.Sprintf("token_ids[%d] is %s, want 32 bits without a sign", index, raw))
		}
		e.Index = &index
		return e
	})
}

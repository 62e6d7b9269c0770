package request

import (
	"github.com/kvatlas/kvatlas/tokenize"
	"github.com/kvatlas/kvatlas/tokenize/chat"
	"github.com/kvatlas/kvatlas/tokenize/remote"
)

// Scoring is how a model compares texts, which decides what prompts a request
// to /score or /rerank becomes.
type Scoring uint8

const (
	// ScoringUnknown leaves such requests without tokens.
	ScoringUnknown Scoring = iota
	// ScoringApart is that of embedding models and late interaction: every
	// text is a prompt, first the queries, then the documents. Texts are
	// taken as they are: no lower case (do_lower_case).
	ScoringApart
	// ScoringJoined is that of generating models as rerankers
	// (use_sep_token false): the document stands right behind the query.
	ScoringJoined
	// ScoringPair is that of cross-encoders: the tokenizer makes one input
	// of both, with what its template for pairs puts around them.
	ScoringPair
)

// PairEncoder is an [Encoder] that takes two texts: [tokenize.Tokenizer]. It
// is needed for [ScoringPair].
type PairEncoder interface {
	AppendPairIDs(dst []uint32, a, b string, o tokenize.EncodeOptions) ([]uint32, error)
}

// Comparison is a request to compare each query with the document beside it, or
// one query with all documents.
type Comparison struct {
	Queries, Documents []string
	// Kwargs are those for a template, with the instruction. Nil: none.
	Kwargs *chat.Dict
}

// scoreFields are the names of the two sides, by endpoint.
var scoreFields = map[Endpoint][][2]string{
	Score:  {{"text_1", "text_2"}, {"queries", "documents"}, {"queries", "items"}, {"data_1", "data_2"}},
	Rerank: {{"query", "documents"}},
}

// score mirrors ScoreRequest, RerankRequest and validate_score_input
// (entrypoints/pooling/scoring, the same in the releases that VLLMRelease
// knows).
func (r *Request) score() error {
	r.AddSpecialTokens = true // whatever the body says
	for _, name := range []string{"max_tokens_per_query", "max_tokens_per_doc"} {
		if v := r.get(name); v != nil && v != int64(0) {
			r.leave(name, "the engine cuts texts by their tokens")
		}
	}
	for _, name := range []string{"padding", "mm_processor_kwargs"} {
		if r.get(name) != nil {
			r.leave(name, "the engine changes the prompt by it")
		}
	}
	if n, ok := r.get("top_n").(int64); ok && n < 0 && r.Endpoint == Rerank {
		return shape("top_n is negative")
	}
	r.Comparison = &Comparison{}
	found := 0
	for _, names := range scoreFields[r.Endpoint] {
		a, hasA := r.root.Get(names[0])
		b, hasB := r.root.Get(names[1])
		if !hasA || !hasB {
			continue
		}
		if found++; found > 1 {
			r.leave(names[0], "there are several pairs of texts; which the engine takes is not known")
			return nil
		}
		if err := r.sides(names, a, b); err != nil {
			return err
		}
	}
	if found == 0 {
		return shape("two sides to compare are missing: %v", scoreFields[r.Endpoint])
	}
	return r.scoreKwargs()
}

func (r *Request) sides(names [2]string, a, b chat.Value) error {
	for i, v := range []chat.Value{a, b} {
		list, ok := v.(*chat.List)
		if !ok {
			list = &chat.List{Items: []chat.Value{v}}
		} else if r.Endpoint == Rerank && i == 0 {
			return shape("query is a list")
		}
		var texts []string
		for _, item := range list.Items {
			switch item := item.(type) {
			case string:
				texts = append(texts, item)
			case *chat.Dict:
				r.leave(names[i], "content parts: what the engine's processor makes of them is not known")
			default:
				return shape("%s holds what is no text", names[i])
			}
		}
		*[]*[]string{&r.Comparison.Queries, &r.Comparison.Documents}[i] = texts
	}
	if r.Cannot != nil {
		return nil
	}
	q, d := len(r.Comparison.Queries), len(r.Comparison.Documents)
	if q == 0 || d == 0 || q > 1 && q != d {
		return shape("%d texts cannot be compared with %d", q, d)
	}
	return nil
}

// scoreKwargs mirrors _merge_instruction_into_kwargs.
func (r *Request) scoreKwargs() error {
	v := r.get("chat_template_kwargs")
	own, ok := v.(*chat.Dict)
	if v != nil && !ok {
		return shape("chat_template_kwargs is no object")
	}
	instruction := r.get("instruction")
	if instruction != nil && !isString(instruction) {
		return shape("instruction is no string")
	}
	if own == nil && instruction == nil {
		return nil
	}
	out := &chat.Dict{}
	for i := 0; own != nil && i < own.Len(); i++ {
		k, v := own.At(i)
		out.Set(k, v)
	}
	if _, has := out.Get("instruction"); !has && instruction != nil {
		out.Set("instruction", instruction)
	}
	r.Comparison.Kwargs = out
	return nil
}

// score mirrors get_request_factory_online and get_score_prompt.
func (m *Model) score(r *Request) (*Result, error) {
	switch {
	case m.Engine == 0:
		return nil, r.cannot(ReasonEngine, "", nil)
	case m.Scoring == ScoringUnknown:
		return nil, r.cannot(ReasonField, "how the model compares texts is not known", nil)
	}
	s := r.Comparison
	var prompts []remote.Rendered
	add := func(ids []uint32, err error) error {
		prompts = append(prompts, remote.Rendered{Tokens: ids})
		return err
	}
	if m.Scoring == ScoringApart {
		for _, side := range [][]string{s.Queries, s.Documents} {
			for _, text := range side {
				if err := add(m.encode(r, text)); err != nil {
					return nil, err
				}
			}
		}
		return &Result{Prompts: prompts}, nil
	}
	for i, document := range s.Documents {
		query := s.Queries[0]
		if len(s.Queries) > 1 {
			query = s.Queries[i]
		}
		if err := add(m.compared(r, query, document)); err != nil {
			return nil, err
		}
	}
	return &Result{Prompts: prompts}, nil
}

// compared returns the prompt for a query and a document.
func (m *Model) compared(r *Request, query, document string) ([]uint32, error) {
	if m.ScoreTemplate != nil {
		text, err := m.scoreText(r, query, document)
		if err != nil {
			return nil, err
		}
		return m.encode(r, text)
	}
	if m.Scoring == ScoringJoined || document == "" { // for transformers an empty text_pair is none
		return m.encode(r, query+document)
	}
	if err := m.encoder(r); err != nil {
		return nil, err
	}
	pairs, ok := m.Encoder.(PairEncoder)
	if !ok {
		return nil, r.cannot(ReasonEncoder, "it does not take pairs of texts", nil)
	}
	ids, err := pairs.AppendPairIDs(nil, query, document, tokenize.EncodeOptions{AddSpecialTokens: r.AddSpecialTokens})
	if err != nil {
		return nil, r.cannot(ReasonEncoder, "", err)
	}
	return ids, nil
}

// scoreText renders the template for scores: two messages, without tools and
// without the head of an answer.
func (m *Model) scoreText(r *Request, query, document string) (string, error) {
	c := &conversation{m: m, r: r, t: m.ScoreTemplate}
	in := &chat.Input{Kwargs: r.Comparison.Kwargs, Messages: &chat.List{Items: []chat.Value{newMessage("query", query), newMessage("document", document)}}}
	for i := 0; in.Kwargs != nil && i < in.Kwargs.Len(); i++ {
		k, v := in.Kwargs.At(i)
		if taken[k] || v == nil || v == "auto" { // releases differ about these
			return "", c.field("chat_template_kwargs." + k)
		}
	}
	text, err := c.apply(nil, in)
	return string(text), err
}

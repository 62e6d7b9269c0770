package tokenize

import (
	"fmt"
	"strings"

	"github.com/kvatlas/kvatlas/internal/jsonscan"
	"github.com/kvatlas/kvatlas/tokenize/internal/unidata"
)

// spaceMark stands for the space in SentencePiece vocabularies.
const spaceMark = "▁"

// pattern is the pattern of a Replace or a Split.
type pattern struct {
	Text  *string `json:"String"`
	Regex *string `json:"Regex"`
}

var forms = map[string]unidata.Form{"NFC": unidata.NFC, "NFD": unidata.NFD, "NFKC": unidata.NFKC, "NFKD": unidata.NFKD}

// readNormalizer returns the steps of a normalizer.
func readNormalizer(raw string, depth int) ([]normOp, error) {
	if isNull(raw) {
		return nil, nil
	}
	kind, fields, err := typeOf(raw)
	if err != nil {
		return nil, invalid("normalizer: %v", err)
	}
	var all struct {
		Prepend     *string   `json:"prepend"`
		Pattern     *pattern  `json:"pattern"`
		Content     *string   `json:"content"`
		Normalizers []rawJSON `json:"normalizers"`
	}
	if err := strict(fields, &all); err != nil {
		return nil, unsupported("normalizer", kind, err.Error())
	}
	form, isForm := forms[kind]
	switch {
	case isForm:
		return []normOp{{kind: normForm, form: form}}, nil
	case kind == "Lowercase":
		return []normOp{{kind: normLower}}, nil
	case kind == "Prepend" && all.Prepend != nil:
		return []normOp{{kind: normPrepend, new: *all.Prepend}}, nil
	case kind == "Replace" && all.Pattern != nil && all.Content != nil:
		if all.Pattern.Text == nil || *all.Pattern.Text == "" {
			return nil, unsupported("normalizer", kind, "only a pattern that is a text is known")
		}
		return []normOp{{kind: normReplace, old: *all.Pattern.Text, new: *all.Content}}, nil
	case kind == "Sequence" && depth < jsonscan.MaxDepth:
		var ops []normOp
		for _, n := range all.Normalizers {
			more, err := readNormalizer(string(n), depth+1)
			if err != nil {
				return nil, err
			}
			ops = append(ops, more...)
		}
		return ops, nil
	}
	return nil, unsupported("normalizer", kind, "")
}

// rawJSON is json.RawMessage without its pointer method, for lists.
type rawJSON []byte

func (r *rawJSON) UnmarshalJSON(b []byte) error {
	*r = append((*r)[:0], b...)
	return nil
}

// pretokenizer is what a pre_tokenizer does to a piece, in this order.
type pretokenizer struct {
	// marks says that spaces become spaceMark.
	marks bool
	// prefix says when a space, or mark, is put before a piece that does
	// not begin with one.
	prefix prefixScheme
	// levels are the patterns; each splits the pieces of the one before.
	// splits are the same by name.
	levels []splitFunc
	splits []splitKind
	// bytes says that the model sees bytes.
	bytes bool
	// words says that a piece begins at each mark.
	words bool
	// wordLevel says that one of levels has patternSplitter.words.
	wordLevel bool
}

type prefixScheme uint8

const (
	prefixNever prefixScheme = iota
	prefixFirst              // only at the very beginning of the text
	prefixAlways
)

// readPretokenizer adds the steps in raw to p. marked says that the
// normalizer leaves no space.
func (p *pretokenizer) read(raw string, marked bool, depth int) error {
	if isNull(raw) {
		return nil
	}
	kind, fields, err := typeOf(raw)
	if err != nil {
		return invalid("pre_tokenizer: %v", err)
	}
	var all struct {
		Pretokenizers  []rawJSON `json:"pretokenizers"`
		Pattern        *pattern  `json:"pattern"`
		Behavior       *string   `json:"behavior"`
		Invert         *bool     `json:"invert"`
		AddPrefixSpace *bool     `json:"add_prefix_space"`
		TrimOffsets    *bool     `json:"trim_offsets"`
		UseRegex       *bool     `json:"use_regex"`
		Replacement    *string   `json:"replacement"`
		PrependScheme  *string   `json:"prepend_scheme"`
		Split          *bool     `json:"split"`
		StrRep         *string   `json:"str_rep"` // of old files, ignored by the library too
		Individual     *bool     `json:"individual_digits"`
	}
	if err := strict(fields, &all); err != nil {
		return unsupported("pre_tokenizer", kind, err.Error())
	}
	if p.bytes {
		return unsupported("pre_tokenizer", kind, "nothing is known to follow ByteLevel")
	}
	switch kind {
	case "Sequence":
		if depth >= jsonscan.MaxDepth {
			return unsupported("pre_tokenizer", kind, "nested too deeply")
		}
		for _, r := range all.Pretokenizers {
			if err := p.read(string(r), marked, depth+1); err != nil {
				return err
			}
		}
		return nil
	case "ByteLevel":
		if p.marks || marked {
			return unsupported("pre_tokenizer", kind, "after spaces became "+spaceMark)
		}
		if all.AddPrefixSpace == nil {
			return invalid("pre_tokenizer: ByteLevel lacks add_prefix_space")
		}
		if *all.AddPrefixSpace {
			if len(p.levels) > 0 {
				return unsupported("pre_tokenizer.add_prefix_space", kind, "behind a pattern")
			}
			p.prefix = prefixAlways
		}
		if all.UseRegex == nil || *all.UseRegex {
			p.split(kindGPT2)
		}
		p.bytes = true
		return nil
	case "Digits":
		if all.Individual != nil && *all.Individual {
			p.split(kindDigit)
		} else {
			p.split(kindDigitRun)
		}
		return nil
	case "Split":
		if all.Pattern == nil || all.Behavior == nil || all.Invert == nil {
			return invalid("pre_tokenizer: Split lacks its pattern, behavior or invert")
		}
		return p.readSplit(all.Pattern, *all.Behavior, *all.Invert, marked)
	case "Metaspace":
		if len(p.levels) > 0 || p.marks {
			return unsupported("pre_tokenizer", kind, "behind another one")
		}
		if all.Replacement == nil || *all.Replacement != spaceMark {
			return unsupported("pre_tokenizer.replacement", kind, "only "+spaceMark+" is known")
		}
		scheme := "always"
		if all.PrependScheme != nil {
			scheme = *all.PrependScheme
		}
		if all.AddPrefixSpace != nil && !*all.AddPrefixSpace && scheme != "never" {
			return invalid("pre_tokenizer: add_prefix_space contradicts prepend_scheme")
		}
		switch scheme {
		case "always":
			p.prefix = prefixAlways
		case "first":
			p.prefix = prefixFirst
		case "never":
		default:
			return unsupported("pre_tokenizer.prepend_scheme", scheme, "")
		}
		p.marks = true
		p.words = all.Split == nil || *all.Split
		return nil
	}
	return unsupported("pre_tokenizer", kind, "")
}

func (p *pretokenizer) readSplit(pattern *pattern, behavior string, invert, marked bool) error {
	if pattern.Text != nil && *pattern.Text == " " && (marked || p.marks) {
		return nil // no space is left to split at
	}
	if pattern.Regex == nil {
		return unsupported("pre_tokenizer.pattern", "String", "only known regular expressions are split")
	}
	kind, ok := patterns[*pattern.Regex]
	if !ok {
		return unsupported("pre_tokenizer.pattern", *pattern.Regex, "only these exact patterns are known: GPT-2, cl100k and Qwen, o200k, tekken, DeepSeek-V3")
	}
	switch {
	case behavior == "Isolated" && !invert:
	case behavior == "Removed" && invert && splitters[kind].covers: // nothing is removed
	default:
		return unsupported("pre_tokenizer.behavior", behavior, "")
	}
	p.split(kind)
	return nil
}

// split adds a level.
func (p *pretokenizer) split(kind splitKind) {
	p.splits = append(p.splits, kind)
	p.levels = append(p.levels, splitters[kind].split)
	p.wordLevel = p.wordLevel || splitters[kind].words
}

// template is what a post-processor puts around the ids of a text.
type template struct {
	before, after []uint32
	pair          []templateStep
	pairErr       *UnsupportedError // why pairs of texts are not known
}

// templateStep is one step of a template for two texts: ids, or a text when
// there are none.
type templateStep struct {
	ids  []uint32
	text int // 0 or 1
}

var plainPair = []templateStep{{text: 0}, {text: 1}}

type specialTokens map[string]struct {
	ID     string   `json:"id"`
	IDs    []uint32 `json:"ids"`
	Tokens []string `json:"tokens"`
}

type templatePiece struct {
	ID     rawJSON `json:"id"`
	TypeID int     `json:"type_id"`
}

// readSteps reads single or pair of a TemplateProcessing.
func readSteps(list []map[string]templatePiece, special specialTokens) ([]templateStep, error) {
	var steps []templateStep
	for _, step := range list {
		for what, p := range step {
			name := strings.Trim(string(p.ID), `"`)
			switch {
			case what == "Sequence" && name == "A":
				steps = append(steps, templateStep{text: 0})
			case what == "Sequence" && name == "B":
				steps = append(steps, templateStep{text: 1})
			case what == "SpecialToken":
				var id string
				if err := strict(string(p.ID), &id); err != nil {
					return nil, invalid("post_processor: %v", err)
				}
				tok, ok := special[id]
				if !ok {
					return nil, invalid("post_processor: %q is not among special_tokens", id)
				}
				if len(tok.IDs) > 0 {
					steps = append(steps, templateStep{ids: tok.IDs})
				}
			default:
				return nil, unsupported("post_processor", what+" "+name, "")
			}
		}
	}
	return steps, nil
}

// readSingle takes the steps for one text.
func (t *template) readSingle(steps []templateStep) error {
	texts := 0
	for _, s := range steps {
		switch {
		case s.ids == nil && s.text == 0:
			texts++
		case s.ids == nil:
			return unsupported("post_processor.single", "Sequence B", "")
		case texts == 0:
			t.before = append(t.before, s.ids...)
		default:
			t.after = append(t.after, s.ids...)
		}
	}
	if texts != 1 {
		return unsupported("post_processor.single", texts, "the text must stand in it once")
	}
	return nil
}

// readPair takes the steps for two texts, which are refused only when two
// texts are encoded.
func (t *template) readPair(raw rawJSON, special specialTokens) {
	var list []map[string]templatePiece
	err := strict(string(raw), &list)
	if err == nil {
		t.pair, err = readSteps(list, special)
	}
	var texts [2]int
	for _, s := range t.pair {
		if s.ids == nil {
			texts[s.text]++
		}
	}
	if err == nil && texts != [2]int{1, 1} {
		err = unsupported("post_processor.pair", fmt.Sprint(texts), "both texts must stand in it once")
	}
	if err != nil {
		t.pairErr = &UnsupportedError{Part: "post_processor.pair", Value: "TemplateProcessing", Reason: err.Error()}
	}
}

func readPostProcessor(raw string, t *template, depth int) error {
	if isNull(raw) {
		return nil
	}
	kind, fields, err := typeOf(raw)
	if err != nil {
		return invalid("post_processor: %v", err)
	}
	var all struct {
		Processors     []rawJSON                  `json:"processors"`
		AddPrefixSpace *bool                      `json:"add_prefix_space"`
		TrimOffsets    *bool                      `json:"trim_offsets"`
		UseRegex       *bool                      `json:"use_regex"`
		Single         []map[string]templatePiece `json:"single"`
		Pair           rawJSON                    `json:"pair"`
		SpecialTokens  specialTokens              `json:"special_tokens"`
	}
	if err := strict(fields, &all); err != nil {
		return unsupported("post_processor", kind, err.Error())
	}
	switch kind {
	case "ByteLevel":
		return nil // trims offsets, changes no id
	case "Sequence":
		if depth >= jsonscan.MaxDepth {
			return unsupported("post_processor", kind, "nested too deeply")
		}
		for _, p := range all.Processors {
			if err := readPostProcessor(string(p), t, depth+1); err != nil {
				return err
			}
		}
		return nil
	case "TemplateProcessing":
		if len(t.before)+len(t.after) > 0 {
			return unsupported("post_processor", kind, "behind another one")
		}
		steps, err := readSteps(all.Single, all.SpecialTokens)
		if err == nil {
			err = t.readSingle(steps)
		}
		if err != nil {
			return err
		}
		t.readPair(all.Pair, all.SpecialTokens)
		return nil
	}
	return unsupported("post_processor", kind, "")
}

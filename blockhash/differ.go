package blockhash

import "strings"

// Features are the parts of a prompt beside its tokens that go into hashes. Releases
// that hash plain prompts alike may differ in them.
type Features uint8

const (
	FeatureLoRA Features = 1 << iota
	FeatureItems
	FeatureSalt
	FeatureEmbeds
	FeatureExtraKey // without an adapter, whose own it is otherwise

	allFeatures Features = 1<<iota - 1
)

var featureNames = [...]string{"LoRA", "items", "salt", "embeds", "extra key"}

// String lists the features, such as "LoRA, salt"; "none" for none.
func (f Features) String() string {
	var names []string
	for i, name := range featureNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Features returns the parts that the prompt has.
func (p *Prompt) Features() (f Features) {
	if p == nil {
		return 0
	}
	if p.LoRA != nil {
		f |= FeatureLoRA
	}
	if len(p.Items) > 0 {
		f |= FeatureItems
	}
	if p.CacheSalt != "" {
		f |= FeatureSalt
	}
	if p.Embeds != nil {
		f |= FeatureEmbeds
	}
	if p.ExtraKey != "" && p.LoRA == nil {
		f |= FeatureExtraKey
	}
	return f
}

// Differ returns the features whose blocks two engines hash in different ways. Prompts
// without them have equal hashes under both; ok is false when not even those do.
// SharedObjects, MemoBytes and the options of other engines than vLLM and SGLang must
// be equal.
func Differ(a, b Options) (f Features, ok bool) {
	x, y := a.Scheme.era(), b.Scheme.era()
	from, to := a, b
	from.Scheme, from.DynamoEvents, to.Scheme, to.DynamoEvents = Scheme{}, false, Scheme{}, false
	if a.Scheme.IsZero() || x.engine != y.engine || x.family != y.family || x.sglang != y.sglang || x.folded != y.folded || from != to {
		return allFeatures, false
	}
	tagged, dynamo := x.tagged != y.tagged, a.DynamoEvents != b.DynamoEvents
	mapped := (a.DynamoEvents || x.namespaceLoRA) != (b.DynamoEvents || y.namespaceLoRA)
	f.add(FeatureLoRA, tagged || mapped || x.loraID != y.loraID || x.seqNamespace != y.seqNamespace)
	f.add(FeatureItems, tagged || x.mmOffset != y.mmOffset)
	f.add(FeatureSalt, tagged || dynamo || x.saltSeeds != y.saltSeeds || x.seqNamespace != y.seqNamespace)
	f.add(FeatureEmbeds, tagged || x.embeds != y.embeds)
	f.add(FeatureExtraKey, dynamo)
	return f, true
}

// DifferByContent is [Differ] for content keys: the features that events of two
// schemes tell in different ways.
func (s Scheme) DifferByContent(t Scheme) (f Features, ok bool) {
	a, b := s.era(), t.era()
	if a.engine != b.engine || s.IsZero() {
		return allFeatures, false
	}
	f.add(FeatureLoRA, a.eventLoRA != b.eventLoRA)
	f.add(FeatureItems, a.mmOffset != b.mmOffset)
	f.add(FeatureSalt, a.saltSeeds != b.saltSeeds)
	f.add(FeatureLoRA|FeatureItems|FeatureSalt|FeatureEmbeds, a.eventKeys != b.eventKeys)
	return f, true
}

func (f *Features) add(which Features, differs bool) {
	if differs {
		*f |= which
	}
}

// SaltInHash reports whether prompts with a cache salt have hashes of their own. In
// SGLang before 0.5.18 they share those of prompts without.
func (s Scheme) SaltInHash() bool {
	e := s.era()
	return e.family != familySGLang || e.saltSeeds
}

// HasDynamoEvents reports whether the releases can publish in SGLang's "format":
// "dynamo" (Options.DynamoEvents).
func (s Scheme) HasDynamoEvents() bool { return s.era().dynamoEvents }

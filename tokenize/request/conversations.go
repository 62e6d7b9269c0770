package request

import (
	"fmt"
	"strings"

	"github.com/kvatlas/kvatlas/tokenize/chat"
)

// chat reads a body of /v1/chat/completions, or one of another endpoint that
// has messages.
func (r *Request) chat() error {
	c := &Chat{Tools: r.get("tools"), Documents: r.get("documents"), Kwargs: r.get("chat_template_kwargs"), ReasoningEffort: r.get("reasoning_effort")}
	r.Chat = c
	r.Prompts = []Prompt{{}}
	r.AddSpecialTokens = r.truth("add_special_tokens", false)
	c.AddGenerationPrompt = r.truth("add_generation_prompt", true)
	c.ContinueFinalMessage = r.truth("continue_final_message", false)
	if c.ContinueFinalMessage && c.AddGenerationPrompt {
		return shape("add_generation_prompt and continue_final_message are both true; the first is by default")
	}
	for _, f := range [][2]string{
		{"chat_template", "engines take a template of the request only when told to trust it"},
		{"mm_processor_kwargs", "they change what the engine's processor makes of multimodal parts"},
		{"prompt_embeds", "embeddings have no token ids"},
	} {
		if r.get(f[0]) != nil {
			r.leave(f[0], f[1])
		}
	}
	r.forwarded()
	if c.Tools != nil && r.get("tool_choice") == "none" {
		r.leave("tool_choice", `whether "none" hides the tools is a setting of the engine`)
	}
	return r.messages(r.get("messages"))
}

// forwarded leaves to the engine what came with its tokens.
func (r *Request) forwarded() {
	if kv, ok := r.get("kv_transfer_params").(*chat.Dict); ok {
		if v, _ := kv.Get("prompt_token_ids"); v != nil {
			r.leave("kv_transfer_params.prompt_token_ids", "vLLM takes them in place of the messages")
		}
	}
}

// messages checks the list and finds the parts that are no text.
func (r *Request) messages(v chat.Value) error {
	list, ok := v.(*chat.List)
	if !ok {
		return shape("messages is no list")
	}
	r.Chat.Messages = list
	for i, m := range list.Items {
		d, ok := m.(*chat.Dict)
		if !ok {
			return shape("messages[%d] is no object", i)
		}
		if role, _ := d.Get("role"); !isString(role) {
			return shape("messages[%d] has no role", i)
		}
		content, _ := d.Get("content")
		if err := r.media(fmt.Sprintf("messages[%d].content", i), i, content); err != nil {
			return err
		}
	}
	return nil
}

// media finds the parts of a content that are no text.
func (r *Request) media(at string, message int, content chat.Value) error {
	parts, ok := content.(*chat.List)
	if !ok {
		return nil
	}
	for i, p := range parts.Items {
		switch p := p.(type) {
		case string:
		case *chat.Dict:
			r.part(fmt.Sprintf("%s[%d]", at, i), message, i, p)
		default:
			return shape("%s[%d] is neither an object nor a string", at, i)
		}
	}
	return nil
}

// textParts are the types of parts, by endpoint where they differ, that are
// no media.
var textParts = map[string]bool{"text": true, "input_text": true, "output_text": true, "refusal": true, "thinking": true, "tool_reference": true,
	"redacted_thinking": true, "tool_use": true, "tool_result": true, "tool_addition": true, "tool_removal": true,
	"reasoning_text": true, "summary_text": true}

func (r *Request) part(at string, message, index int, d *chat.Dict) {
	v, _ := d.Get("type")
	kind, _ := v.(string)
	if textParts[kind] {
		return
	}
	if kind == "" {
		r.leave(at, "it has no type")
	}
	p := Part{Message: message, Index: index, Type: kind}
	for i := range d.Len() {
		k, v := d.At(i)
		s, _ := v.(string)
		inner, _ := v.(*chat.Dict)
		switch {
		case k == "uuid":
			p.UUID = s
		case k == kind || strings.HasSuffix(k, "_url") || k == "source":
			p.URL = s
			if inner != nil {
				u, _ := inner.Get("url")
				p.URL, _ = u.(string)
			}
		}
	}
	r.Chat.Media = append(r.Chat.Media, p)
	r.leave(at, kind+": what the engine's processor makes of it is not known")
}

// known are the fields of the other two kinds of chats that are read, and
// those that have no part in the prompt. All that are not here make a body
// one for the engine to render.
var known = map[Endpoint]string{
	Responses: " model input instructions tools tool_choice reasoning chat_template_kwargs truncation " +
		" background enable_response_messages frequency_penalty ignore_eos include include_reasoning include_stop_str_in_output logit_bias " +
		" max_output_tokens max_tool_calls metadata min_p parallel_tool_calls presence_penalty prompt_cache_key repetition_penalty " +
		" safety_identifier seed service_tier skip_special_tokens stop stop_token_ids store stream stream_options structured_outputs " +
		" temperature text top_k top_logprobs top_p user" + knownToBoth,
	Messages: " model messages system tools tool_choice thinking output_config chat_template_kwargs " +
		" context_management max_tokens metadata service_tier stop_sequences stream temperature top_k top_p" + knownToBoth,
}

const knownToBoth = " cache_salt session_id vllm_xargs priority request_id kv_transfer_params ec_transfer_params mm_payload return_mm_kwargs watermarking "

func (r *Request) onlyKnown() {
	for i := range r.root.Len() {
		if name, v := r.root.At(i); v != nil && !strings.Contains(known[r.Endpoint], " "+name+" ") {
			r.leave(name, "how the engine turns it into a chat is not proved here")
		}
	}
}

// responses and anthropic keep the body's values: which messages they become
// depends on the release (Model.AppendText).
func (r *Request) responses() error {
	r.onlyKnown()
	r.forwarded()
	r.Prompts = []Prompt{{}}
	r.Chat = &Chat{AddGenerationPrompt: true, Kwargs: r.get("chat_template_kwargs")}
	// ResponsesRequest.build_tok_params leaves add_special_tokens at the
	// renderer's default, which is true: BOS stands twice for some models.
	r.AddSpecialTokens = true
	if v, ok := r.root.Get("truncation"); ok && v != "disabled" {
		r.leave("truncation", "what is left depends on the engine's limits")
	}
	switch v := r.get("input").(type) {
	case string:
	case *chat.List:
		for i, item := range v.Items {
			if d, ok := item.(*chat.Dict); ok {
				content, _ := d.Get("content")
				if err := r.media(fmt.Sprintf("input[%d].content", i), i, content); err != nil {
					return err
				}
			}
		}
	default:
		return shape("input is missing")
	}
	return nil
}

func (r *Request) anthropic() error {
	r.onlyKnown()
	r.forwarded()
	r.Prompts = []Prompt{{}}
	r.Chat = &Chat{AddGenerationPrompt: true, Kwargs: r.get("chat_template_kwargs")}
	return r.messages(r.get("messages"))
}

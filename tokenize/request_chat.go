package tokenize

import (
	"fmt"
	"strings"
)

func (p *requestParser) chat() error {
	c := &Chat{
		Messages: p.fields["messages"], Tools: p.fields["tools"], Documents: p.fields["documents"],
		Kwargs: p.fields["chat_template_kwargs"], ReasoningEffort: p.fields["reasoning_effort"], ToolChoice: p.fields["tool_choice"],
	}
	p.r.Chat = c
	p.r.Prompts = append(p.r.Prompts, Prompt{})
	p.r.AddSpecialTokens = p.truth("add_special_tokens", false)
	c.AddGenerationPrompt = p.truth("add_generation_prompt", true)
	c.ContinueFinalMessage = p.truth("continue_final_message", false)
	if c.ContinueFinalMessage && c.AddGenerationPrompt {
		return &RequestError{-1, "add_generation_prompt and continue_final_message are both true; the first is by default"}
	}
	for name, reason := range map[string]string{
		"chat_template":       "engines take a template of the request only when told to trust it",
		"mm_processor_kwargs": "they change what the engine's processor makes of multimodal parts",
		"prompt_embeds":       "embeddings have no token ids",
	} {
		if _, ok := p.fields[name]; ok {
			p.cannot(name, reason)
		}
	}
	if c.Tools != "" && c.ToolChoice == `"none"` {
		p.cannot("tool_choice", `whether "none" hides the tools is a setting of the engine`)
	}
	return p.messages(c)
}

// messages checks the list and finds the parts that are no text.
func (p *requestParser) messages(c *Chat) error {
	if c.Messages == "" {
		return &RequestError{-1, "messages is missing"}
	}
	n := 0
	s := &scanner{data: c.Messages}
	if s.peek() != '[' {
		return &RequestError{-1, "messages is no list"}
	}
	err := s.array(func() error {
		if s.peek() != '{' {
			return &RequestError{-1, fmt.Sprintf("messages[%d] is no object", n)}
		}
		role := false
		err := s.object(func(key string) error {
			role = role || key == "role"
			if key == "content" && s.peek() == '[' {
				return p.parts(c, s, n)
			}
			_, err := s.raw()
			return err
		})
		if err == nil && !role {
			err = &RequestError{-1, fmt.Sprintf("messages[%d] has no role", n)}
		}
		n++
		return err
	})
	for _, m := range c.Media {
		p.cannot(fmt.Sprintf("messages[%d].content[%d]", m.Message, m.Index), m.Type+": what the engine's processor makes of it is not known")
	}
	return err
}

func (p *requestParser) parts(c *Chat, s *scanner, message int) error {
	index := 0
	return s.array(func() error {
		defer func() { index++ }()
		if s.peek() == '"' {
			_, err := s.str()
			return err
		}
		if s.peek() != '{' {
			return &RequestError{-1, fmt.Sprintf("messages[%d].content[%d] is neither an object nor a string", message, index)}
		}
		kind, uuid := "", false
		err := s.object(func(key string) (err error) {
			if key == "type" && s.peek() == '"' {
				kind, err = s.str()
				return err
			}
			uuid = uuid || key == "uuid"
			_, err = s.raw()
			return err
		})
		switch kind {
		case "text", "input_text", "output_text", "refusal", "thinking":
		case "":
			p.cannot(fmt.Sprintf("messages[%d].content[%d]", message, index), "it has no type")
		default:
			c.Media = append(c.Media, Part{Message: message, Index: index, Type: kind})
		}
		return err
	})
}

// plain are the fields of the other two kinds of chats that have no part in
// the prompt. All that are not here and not read make it one that only the
// engine can render.
var plain = map[Endpoint]string{
	Responses: " model input max_output_tokens temperature top_p stream store metadata user cache_salt session_id vllm_xargs priority request_id ",
	Messages:  " model messages max_tokens temperature top_p top_k stream stop_sequences metadata cache_salt session_id vllm_xargs priority request_id ",
}

func (p *requestParser) onlyPlain() {
	for name := range p.fields {
		if !strings.Contains(plain[p.r.Endpoint], " "+name+" ") {
			p.cannot(name, "how the engine turns it into a chat is not proved here")
			return
		}
	}
}

// responses takes what vLLM was recorded to render: an input that is one
// text, as the message of a user.
func (p *requestParser) responses() error {
	raw, ok := p.fields["input"]
	if !ok {
		return &RequestError{-1, "input is missing"}
	}
	p.onlyPlain()
	p.r.Prompts = append(p.r.Prompts, Prompt{})
	p.r.Chat = &Chat{AddGenerationPrompt: true}
	if raw[0] != '"' {
		p.cannot("input", "how the engine turns items into a chat is not proved here")
		return nil
	}
	p.r.Chat.Messages = `[{"role":"user","content":` + raw + `}]`
	return nil
}

// anthropic takes messages whose contents are texts, which vLLM hands to the
// template as they are.
func (p *requestParser) anthropic() error {
	p.onlyPlain()
	c := &Chat{Messages: p.fields["messages"], AddGenerationPrompt: true}
	p.r.Chat = c
	p.r.Prompts = append(p.r.Prompts, Prompt{})
	if err := p.messages(c); err != nil {
		return err
	}
	n := 0
	s := &scanner{data: c.Messages}
	return s.array(func() error {
		err := s.object(func(key string) error {
			raw, err := s.raw()
			plain := key == "content" && raw[0] == '"' || key == "role" && (raw == `"user"` || raw == `"assistant"`)
			if !plain {
				p.cannot(fmt.Sprintf("messages[%d].%s", n, key), "how the engine turns it into a chat is not proved here")
			}
			return err
		})
		n++
		return err
	})
}

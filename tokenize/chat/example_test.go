package chat_test

import (
	"errors"
	"fmt"

	"github.com/kvatlas/kvatlas/tokenize/chat"
)

func ExampleTemplate_AppendRender() {
	t, err := chat.Parse("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}\n{% endfor %}"+
		"{% if add_generation_prompt %}<|assistant|>{% endif %}",
		chat.Options{SpecialTokens: map[string]string{"bos_token": "<s>"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	messages, err := chat.ParseJSON([]byte(`[{"role": "user", "content": " Hello! "}]`))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := t.AppendRender(nil, &chat.Input{Messages: messages.(*chat.List), AddGenerationPrompt: true})
	fmt.Printf("%s %v\n", text, err)
	// Output:
	// <s><|user|>Hello!
	// <|assistant|> <nil>
}

func ExampleParse_refused() {
	_, err := chat.Parse("{{ messages | from_json }}", chat.Options{})
	refused, ok := errors.AsType[*chat.UnsupportedError](err)
	fmt.Println(ok, refused.Kind, refused.Name)
	// Output: true filter from_json
}

package request_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/tokenize"
	"github.com/kvatlas/kvatlas/tokenize/chat"
	"github.com/kvatlas/kvatlas/tokenize/request"
)

func ExampleModel_Tokens() {
	// Nothing is known of the model: ids that the body has are exact all the
	// same, everything else has a reason.
	model := &request.Model{Counters: &request.Counters{}}
	for _, body := range []string{`{"model": "m", "prompt": [1, 2, 3], "cache_salt": "tenant"}`, `{"model": "m", "prompt": "text"}`} {
		req, err := request.Parse("/v1/completions", nil, []byte(body), request.Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		res, err := model.Tokens(context.Background(), req)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(res.Prompts[0].Tokens, req.Salt)
	}
	fmt.Println(model.Counters.Cannot(request.Completions, request.ReasonEncoder))
	// Output:
	// [1 2 3] tenant
	// request: no exact tokens for completions: encoder: there is none in process
	// 1
}

// A chat's body to the prompt that the engine will hash, from the model's files.
func ExampleModel_Tokens_chat() {
	tokenizer, err := tokenize.LoadFile("tokenizer.json", tokenize.Options{})
	if err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile("tokenizer_config.json")
	if err != nil {
		log.Fatal(err)
	}
	config, err := chat.LoadConfig(text, "") // or the text of chat_template.jinja, if there is one
	if err != nil {
		log.Fatal(err)
	}
	template, err := chat.Parse(config.Template, chat.Options{SpecialTokens: config.SpecialTokens})
	if err != nil {
		log.Fatal(err)
	}
	engine, _ := request.VLLMRelease("0.32.0") // of GET /version
	model := &request.Model{Encoder: tokenizer, Template: template, Engine: engine}

	body := []byte(`{"model": "m", "messages": [{"role": "user", "content": "Who holds my cache?"}]}`)
	req, err := request.Parse("/v1/chat/completions", nil, body, request.Options{})
	if err != nil {
		log.Fatal(err)
	}
	res, err := model.Tokens(context.Background(), req)
	if err != nil {
		log.Fatal(err)
	}
	prompt := blockhash.Prompt{Tokens: res.Prompts[0].Tokens, CacheSalt: req.Salt} // for kvatlas.Request
	fmt.Println(prompt.Len(), "tokens")
}

package request_test

import (
	"context"
	"fmt"

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

package tokenize_test

import (
	"crypto/sha256"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/kvatlas/kvatlas/tokenize"
)

const tokenizerJSON = `{"version":"1.0","pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
	"model":{"type":"BPE","vocab":{"a":0,"b":1,"Ġ":2,"ab":3,"Ġab":4},"merges":["a b","Ġ ab"]}}`

func ExampleLoad() {
	tok, err := tokenize.Load([]byte(tokenizerJSON), tokenize.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ids, err := tok.AppendIDs(nil, "ab ab b", tokenize.EncodeOptions{})
	fmt.Println(ids, err)
	// Output: [3 4 2 1] <nil>
}

func ExampleStream() {
	tok, err := tokenize.Load([]byte(tokenizerJSON), tokenize.Options{})
	if err != nil {
		log.Fatal(err)
	}
	s, err := tok.NewStream(tokenize.EncodeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	var ids []uint32
	for _, piece := range []string{"a", "b a", "b", " b"} {
		if ids, err = s.AppendIDs(ids, []byte(piece)); err != nil {
			log.Fatal(err)
		}
	}
	ids, err = s.Finish(ids)
	fmt.Println(ids, err)
	// Output: [3 4 2 1] <nil>
}

// The compact form beside a tokenizer.json, made when it is not there or not
// of this file.
func ExampleLoadBinary() {
	data := []byte(tokenizerJSON)
	name := filepath.Join(os.TempDir(), "example-tokenizer.kvatlas")
	defer os.Remove(name)
	for range 2 {
		compact, _ := os.ReadFile(name)
		tok, err := tokenize.LoadBinary(compact, sha256.Sum256(data), tokenize.Options{})
		fmt.Println("from the compact form:", err == nil)
		if err != nil {
			if tok, err = tokenize.Load(data, tokenize.Options{}); err != nil {
				log.Fatal(err)
			}
			compact, _ = tok.AppendBinary(nil)
			if err := os.WriteFile(name, compact, 0o600); err != nil {
				log.Fatal(err)
			}
		}
		ids, err := tok.AppendIDs(nil, "ab ab b", tokenize.EncodeOptions{})
		fmt.Println(ids, err)
	}
	// Output:
	// from the compact form: false
	// [3 4 2 1] <nil>
	// from the compact form: true
	// [3 4 2 1] <nil>
}

package tokenize

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzEncode: the tokens of a text, put together, are the text; encoding
// twice gives the same; a text cut at an added token gives the same.
func FuzzEncode(f *testing.F) {
	data := tokenizerJSON(f, "tiny")
	tok, err := Load(data, Options{})
	require.NoError(f, err)
	var file struct {
		Model struct {
			Vocab map[string]uint32 `json:"vocab"`
		} `json:"model"`
		Added []struct {
			ID      uint32 `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
	}
	require.NoError(f, json.Unmarshal(data, &file))
	texts := make(map[uint32]string)
	for token, id := range file.Model.Vocab {
		if text, ok := tok.plain(nil, token); ok {
			texts[id] = string(text)
		}
	}
	for _, a := range file.Added {
		texts[a.ID] = a.Content
	}
	p := loadPools(f)
	for i := range 40 {
		f.Add(p.text(i))
	}
	f.Add("\xff<|im_start|>\xe2\x82")
	f.Fuzz(func(t *testing.T, text string) {
		got := ids(t, tok, text)
		var b strings.Builder
		for _, id := range got {
			b.WriteString(texts[id])
		}
		require.Equal(t, string(appendValid(nil, text)), b.String())
		require.Equal(t, got, ids(t, tok, text))

		const mark = "<|im_end|>"
		joined := append(append(ids(t, tok, text), ids(t, tok, mark)...), ids(t, tok, text)...)
		require.Equal(t, joined, ids(t, tok, text+mark+text))
	})
}

// FuzzLoad: no file makes Load panic, and a file that loads encodes.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"version":"1.0","added_tokens":[{"id":3,"content":"<s>","normalized":true,"special":true}],"normalizer":{"type":"NFC"},` +
		`"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true},"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`))
	f.Add([]byte(`{"version":"1.0","pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true},` +
		`"model":{"type":"BPE","unk_token":"?","fuse_unk":true,"vocab":{"a":0,"▁":1,"▁a":2,"?":3},"merges":[["▁","a"]]}}`))
	f.Add([]byte(`{"version":"1.0","post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{}},"model":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Load(data, Options{})
		if err != nil {
			return
		}
		for _, text := range []string{"", "ab a <s>b\u0301", " ▁\n\xff漢"} {
			_, err := tok.AppendIDs(nil, text, EncodeOptions{AddSpecialTokens: true})
			require.NoError(t, err)
		}
	})
}

package request

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/kvatlas/kvatlas/tokenize/chat"
	"github.com/stretchr/testify/require"
)

// testdata/chat-VERSION.jsonl are renders of vLLM's own code. Do not change
// them: change the code.

func lines(t testing.TB, name string) []string {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	var out []string
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		out = append(out, sc.Text())
	}
	require.NoError(t, sc.Err())
	return out
}

func TestChatsAsVLLM(t *testing.T) {
	data, err := os.ReadFile("testdata/templates.json")
	require.NoError(t, err)
	var sources map[string]string
	require.NoError(t, json.Unmarshal(data, &sources))
	bodies := lines(t, "testdata/bodies.jsonl")
	for _, version := range []string{"0.29.0", "0.32.0", "0.33.0"} {
		release, ok := VLLMRelease(version)
		require.True(t, ok)
		models := map[string]*Model{}
		for name, src := range sources {
			tpl, err := chat.Parse(src, chat.Options{SpecialTokens: map[string]string{"bos_token": "<s>", "eos_token": "</s>"}})
			require.NoError(t, err)
			m := &Model{Template: tpl, Engine: release}
			if release < VLLM0_32 {
				m.Format = chat.ContentString
				if name == "dump-parts" {
					m.Format = chat.ContentParts
				}
			}
			models[name] = m
		}
		equal, refused, rejected := 0, 0, 0
		for _, line := range lines(t, "testdata/chat-"+version+".jsonl") {
			var want struct {
				Body     int
				Template string
				Text     *string
				Error    string
			}
			require.NoError(t, json.Unmarshal([]byte(line), &want))
			where := version + " " + want.Template + " " + bodies[want.Body]
			r, err := Parse("/v1/chat/completions", nil, []byte(bodies[want.Body]), Options{})
			var got []byte
			if err == nil {
				require.Equal(t, bodies[want.Body], string(r.Body))
				got, err = models[want.Template].AppendText(nil, r)
			}
			if err != nil {
				why, ok := errors.AsType[*CannotError](err)
				require.True(t, ok, where)
				if why.Local() {
					refused++
					continue
				}
				// The engine refuses it, too.
				require.Nil(t, want.Text, "%s: %v", where, err)
				rejected++
				continue
			}
			require.NotNil(t, want.Text, "%s: vLLM gives %s, here %q", where, want.Error, got)
			require.Equal(t, *want.Text, string(got), where)
			equal++
		}
		t.Logf("vLLM %s: %d equal, %d left to the engine, %d rejected by both", version, equal, refused, rejected)
		require.Greater(t, equal, 150)
		require.Equal(t, len(bodies)*len(sources), equal+refused+rejected)
	}
}

func TestBillingHeaderLeftAlone(t *testing.T) {
	// 0.29 keeps what 0.32 drops.
	require.True(t, strings.Contains(strings.Join(lines(t, "testdata/chat-0.29.0.jsonl"), ""), billingHeader))
	require.False(t, strings.Contains(strings.Join(lines(t, "testdata/chat-0.32.0.jsonl"), ""), billingHeader))
}

package request

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/kvatlas/kvatlas/tokenize/chat"
	"github.com/stretchr/testify/require"
)

// testdata/chat-VERSION.jsonl and apis-VERSION.jsonl.gz are renders of vLLM's own code. Do not change
// them: change the code.

func lines(t testing.TB, name string) []string {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	var out []string
	var in io.Reader = f
	if strings.HasSuffix(name, ".gz") {
		in, err = gzip.NewReader(f)
		require.NoError(t, err)
	}
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		out = append(out, sc.Text())
	}
	require.NoError(t, sc.Err())
	return out
}

// sample is a body that came to a path.
type sample struct{ Path, Body string }

func TestChatsAsVLLM(t *testing.T) {
	var samples []sample
	for _, body := range lines(t, "testdata/bodies.jsonl") {
		samples = append(samples, sample{"/v1/chat/completions", body})
	}
	for _, version := range []string{"0.29.0", "0.32.0", "0.33.0"} {
		equal := compareWithVLLM(t, version, "testdata/chat-"+version+".jsonl", "testdata/templates.json", samples)
		require.Greater(t, equal["/v1/chat/completions"], 150)
	}
}

// The same for the APIs that vLLM makes chats of.
func TestMessagesAndResponsesAsVLLM(t *testing.T) {
	var samples []sample
	for _, line := range lines(t, "testdata/api-bodies.jsonl.gz") {
		var s sample
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		samples = append(samples, s)
	}
	for _, version := range []string{"0.29.0", "0.32.0", "0.33.0"} {
		equal := compareWithVLLM(t, version, "testdata/apis-"+version+".jsonl.gz", "testdata/api-templates.json", samples)
		require.Greater(t, equal["/v1/messages"], 470)
		require.Greater(t, equal["/v1/responses"], 540)
	}
}

// compareWithVLLM compares each render of the results file and returns, by
// path, how many are equal.
func compareWithVLLM(t *testing.T, version, results, templates string, samples []sample) map[string]int {
	t.Helper()
	data, err := os.ReadFile(templates)
	require.NoError(t, err)
	var sources map[string]string
	require.NoError(t, json.Unmarshal(data, &sources))
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
	equal, refused, rejected, total := map[string]int{}, map[string]int{}, map[string]int{}, 0
	for _, line := range lines(t, results) {
		var want struct {
			Body     int
			Template string
			Text     *string
			Error    string
		}
		require.NoError(t, json.Unmarshal([]byte(line), &want))
		total++
		s := samples[want.Body]
		where := version + " " + want.Template + " " + s.Path + " " + s.Body
		r, err := Parse(s.Path, nil, []byte(s.Body), Options{})
		var got []byte
		if err == nil {
			require.Equal(t, s.Body, string(r.Body))
			got, err = models[want.Template].AppendText(nil, r)
		}
		if err != nil {
			why, ok := errors.AsType[*CannotError](err)
			require.True(t, ok, where)
			if why.Local() {
				refused[s.Path]++
				continue
			}
			// The engine refuses it, too.
			require.Nil(t, want.Text, "%s: %v", where, err)
			rejected[s.Path]++
			continue
		}
		require.NotNil(t, want.Text, "%s: vLLM gives %s, here %q", where, want.Error, got)
		require.Equal(t, *want.Text, string(got), where)
		equal[s.Path]++
	}
	require.Equal(t, len(samples)*len(sources), total)
	t.Logf("vLLM %s: equal %v, left to the engine %v, rejected by both %v", version, equal, refused, rejected)
	return equal
}

func TestBillingHeaderLeftAlone(t *testing.T) {
	// 0.29 keeps what 0.32 drops.
	require.True(t, strings.Contains(strings.Join(lines(t, "testdata/chat-0.29.0.jsonl"), ""), billingHeader))
	require.False(t, strings.Contains(strings.Join(lines(t, "testdata/chat-0.32.0.jsonl"), ""), billingHeader))
}

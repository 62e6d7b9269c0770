package simulate

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const vllmLog = `INFO 09-14 10:00:01 [api_server.py:1] Started
(APIServer pid=7) INFO 09-14 10:00:02 [logger.py:39] Received request cmpl-1-0: prompt: 'a', params: SamplingParams(n=1, max_tokens=16, seed=None), prompt_token_ids: [1, 2, 3, 4, 5], lora_request: None.
(APIServer pid=7) INFO 09-14 10:00:04.5 [logger.py:39] Received request cmpl-2-0: prompt: 'b', params: SamplingParams(max_tokens=None), prompt_token_ids: [1, 2, 9, 9], lora_request: None.
INFO 09-14 10:00:05 [logger.py:39] Received request cmpl-3-0: prompt: None, params: SamplingParams(), prompt_token_ids: None
`

func TestConvertVLLMLog(t *testing.T) {
	tr, err := ConvertVLLMLog(strings.NewReader(vllmLog), 2)
	require.NoError(t, err)
	require.Len(t, tr.Arrivals, 2)
	a, b := tr.Arrivals[0], tr.Arrivals[1]
	require.Equal(t, []float64{0, 2.5}, []float64{a.At, b.At})
	require.Equal(t, []int{5, 16, 4, 256}, []int{a.Tokens, a.Output, b.Tokens, b.Output})
	require.Len(t, a.Blocks, 2)
	require.Equal(t, a.Blocks[0], b.Blocks[0])
	require.NotEqual(t, a.Blocks[1], b.Blocks[1])
	var out bytes.Buffer
	require.NoError(t, WriteTrace(&out, tr))
	again, err := ReadTrace(&out, 2, 0)
	require.NoError(t, err)
	require.Equal(t, a.Blocks, again.Arrivals[0].Blocks)

	_, err = ConvertVLLMLog(strings.NewReader("nothing"), 16)
	require.ErrorContains(t, err, "--enable-log-requests")
	_, err = ConvertVLLMLog(strings.NewReader(vllmLog), 0)
	require.ErrorContains(t, err, "block size")
	_, err = ConvertVLLMLog(strings.NewReader("09-14 10:00:02 Received request prompt_token_ids: [99999999999]"), 16)
	require.ErrorContains(t, err, "line 1")
}

func FuzzConvertVLLMLog(f *testing.F) {
	f.Add([]byte(vllmLog))
	f.Add([]byte("99-99 99:99:99 Received request prompt_token_ids: [1,,2]"))
	f.Fuzz(func(t *testing.T, in []byte) {
		tr, err := ConvertVLLMLog(bytes.NewReader(in), 4)
		if err == nil && tr.validate() != nil {
			t.Fatal("an invalid trace")
		}
	})
}

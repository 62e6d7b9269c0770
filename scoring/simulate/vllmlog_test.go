package simulate

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const vllmOldLog = `INFO 09-14 10:00:01 [api_server.py:1] Started
(APIServer pid=7) INFO 09-14 10:00:02 [logger.py:39] Received request cmpl-1-0: prompt: 'a', params: SamplingParams(n=1, max_tokens=16, seed=None), prompt_token_ids: [1, 2, 3, 4, 5], lora_request: None.
(APIServer pid=7) INFO 09-14 10:00:04.5 [logger.py:39] Received request cmpl-2-0: prompt: 'b', params: SamplingParams(max_tokens=None), prompt_token_ids: [1, 2, 9, 9], lora_request: None.
INFO 09-14 10:00:05 [logger.py:39] Received request cmpl-3-0: prompt: None, params: SamplingParams(), prompt_token_ids: None
`

func TestConvertVLLMLog(t *testing.T) {
	tr, err := ConvertVLLMLog(strings.NewReader(vllmOldLog), 2)
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
	_, err = ConvertVLLMLog(strings.NewReader(vllmOldLog), 0)
	require.ErrorContains(t, err, "block size")
	_, err = ConvertVLLMLog(strings.NewReader("09-14 10:00:02 Received request prompt_token_ids: [99999999999]"), 16)
	require.ErrorContains(t, err, "line 1")
}

// The form of 0.11 and later: prompts in debug lines, answers of three kinds.
const vllmDebugLog = `(APIServer pid=9) DEBUG 09-14 10:00:02 [request_logger.py:57] Request chatcmpl-a details: prompt: 'x prompt_token_ids: [7] Received request z: max_tokens=9', prompt_token_ids: [1, 2, 3, 4, 5], prompt_embeds shape: None.
(APIServer pid=9) INFO 09-14 10:00:02 [request_logger.py:66] Received request chatcmpl-a: params: SamplingParams(n=1, max_tokens=16, seed=None), lora_request: None.
(APIServer pid=9) DEBUG 09-14 10:00:03 [request_logger.py:57] Request chatcmpl-b details: prompt: None, prompt_token_ids: [1, 2], prompt_embeds shape: None.
(APIServer pid=9) INFO 09-14 10:00:03 [request_logger.py:66] Received request chatcmpl-b: params: SamplingParams(max_tokens=30), lora_request: None.
(APIServer pid=9) DEBUG 09-14 10:00:03 [request_logger.py:57] Request chatcmpl-c details: prompt: None, prompt_token_ids: [1, 2], prompt_embeds shape: None.
(APIServer pid=9) INFO 09-14 10:00:03 [request_logger.py:66] Received request chatcmpl-c: params: SamplingParams(max_tokens=40), lora_request: None.
(APIServer pid=9) INFO 09-14 10:00:04 [request_logger.py:99] Generated response chatcmpl-a: output: 'output_token_ids: [1]', output_token_ids: [8, 9, 10], finish_reason: stop
(APIServer pid=9) INFO 09-14 10:00:04 [request_logger.py:99] Generated response chatcmpl-b (streaming delta): output: 'a', output_token_ids: [8, 9], finish_reason: None
(APIServer pid=9) INFO 09-14 10:00:04 [request_logger.py:99] Generated response chatcmpl-b (streaming delta): output: 'b', output_token_ids: [8], finish_reason: None
(APIServer pid=9) INFO 09-14 10:00:04 [request_logger.py:99] Generated response chatcmpl-b (streaming complete): output: 'ab', output_token_ids: None, finish_reason: stop
(APIServer pid=9) DEBUG 09-14 10:00:04 [request_logger.py:99] Generated response chatcmpl-c details: output_token_ids: (8, 9, 10, 11)
(APIServer pid=9) INFO 09-14 10:00:04 [request_logger.py:99] Generated response chatcmpl-unknown: output: '', output_token_ids: [8], finish_reason: stop
`

func TestConvertVLLMDebugLog(t *testing.T) {
	tr, err := ConvertVLLMLog(strings.NewReader(vllmDebugLog), 2)
	require.NoError(t, err)
	require.Len(t, tr.Arrivals, 3)
	require.Equal(t, []int{5, 2, 2}, []int{tr.Arrivals[0].Tokens, tr.Arrivals[1].Tokens, tr.Arrivals[2].Tokens})
	require.Equal(t, []int{3, 3, 4}, []int{tr.Arrivals[0].Output, tr.Arrivals[1].Output, tr.Arrivals[2].Output})
	require.Equal(t, tr.Arrivals[0].Blocks[0], tr.Arrivals[2].Blocks[0])
	require.Equal(t, []float64{0, 1, 1}, []float64{tr.Arrivals[0].At, tr.Arrivals[1].At, tr.Arrivals[2].At})

	var kept []string // without what --enable-log-outputs writes
	for line := range strings.Lines(vllmDebugLog) {
		if !strings.Contains(line, "Generated") {
			kept = append(kept, line)
		}
	}
	tr, err = ConvertVLLMLog(strings.NewReader(strings.Join(kept, "")), 2)
	require.NoError(t, err)
	require.Equal(t, []int{16, 30, 40}, []int{tr.Arrivals[0].Output, tr.Arrivals[1].Output, tr.Arrivals[2].Output})

	_, err = ConvertVLLMLog(strings.NewReader(kept[1]), 2)
	require.ErrorContains(t, err, "1 lines with \"Received request\"")
	require.ErrorContains(t, err, "VLLM_LOGGING_LEVEL=DEBUG")
}

// TestConvertRecordedLog: testdata/README.md says what was recorded.
func TestConvertRecordedLog(t *testing.T) {
	f, err := os.Open("testdata/vllm-0.32.0.log")
	require.NoError(t, err)
	defer f.Close()
	tr, err := ConvertVLLMLog(f, 16)
	require.NoError(t, err)
	var prompts, answers []int
	for _, a := range tr.Arrivals {
		prompts, answers = append(prompts, a.Tokens), append(answers, a.Output)
	}
	require.Equal(t, []int{50, 35, 4, 1}, prompts)
	require.Equal(t, []int{5, 7, 4, 4}, answers, "two logged, two as max_tokens has it")
	require.Equal(t, []float64{0, 2, 3, 3}, []float64{tr.Arrivals[0].At, tr.Arrivals[1].At, tr.Arrivals[2].At, tr.Arrivals[3].At})
	require.Equal(t, tr.Arrivals[0].Blocks[0], tr.Arrivals[1].Blocks[0], "the two chats begin alike")
}

func FuzzConvertVLLMLog(f *testing.F) {
	f.Add([]byte(vllmOldLog))
	f.Add([]byte(vllmDebugLog))
	f.Add([]byte("99-99 99:99:99 Received request prompt_token_ids: [1,,2]"))
	f.Fuzz(func(t *testing.T, in []byte) {
		tr, err := ConvertVLLMLog(bytes.NewReader(in), 4)
		if err == nil && tr.validate() != nil {
			t.Fatal("an invalid trace")
		}
	})
}

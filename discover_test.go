package kvatlas_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/internal/golden"
)

// TestVLLMWorker reads what recorded servers answered.
func TestVLLMWorker(t *testing.T) {
	for _, release := range []string{"0.13.0", "0.20.2", "0.29.0", "0.32.0"} {
		var pairs []struct {
			Path     string          `json:"path"`
			Response json.RawMessage `json:"response"`
		}
		require.NoError(t, json.Unmarshal(golden.Read(t, "vllm/server/"+release+"/tokenize.json"), &pairs))
		found := false
		for _, p := range pairs {
			if p.Path != "/version" {
				continue
			}
			found = true
			w, err := kvatlas.VLLMWorker("w", p.Response)
			require.NoError(t, err)
			require.True(t, w.Auto)
			require.Contains(t, w.Release, release)
			require.NoError(t, newAtlas(t).AddWorker(w))
		}
		require.True(t, found, release)
	}
	for version, release := range map[string]string{
		"0.1.dev12+gabcdef": "", "0.30.1.dev20+gabcdef": "", // left to the events
		"0.31.0rc1": "0.31.0rc1", "0.32.0+cpu": "0.32.0+cpu", "0.34.0": "0.34.0",
	} {
		w, err := kvatlas.VLLMWorker("w", []byte(`{"version":"`+version+`"}`))
		require.NoError(t, err)
		require.Equal(t, release, w.Release, version)
		require.NoError(t, newAtlas(t).AddWorker(w))
	}
	for _, bad := range []string{``, `{}`, `[]`, `{"version":3}`, `{"version":""}`} {
		_, err := kvatlas.VLLMWorker("w", []byte(bad))
		require.ErrorContains(t, err, "/version", bad)
	}
}

func TestSGLangWorker(t *testing.T) {
	for answer, want := range map[string]kvatlas.Worker{
		`{"version":"0.5.9","page_size":16}`:                                                            {Release: "0.5.9", BlockSize: 16},
		`{"version":"0.5.23","page_size":16,"dcp_size":2,"kv_events":{"block_size":32}}`:                {Release: "0.5.23", BlockSize: 32},
		`{"version":"0.5.23","page_size":16,"dcp_size":2,"kv_events":null}`:                             {Release: "0.5.23", BlockSize: 32},
		`{"version":"0.5.22","page_size":1,"kv_events_config":"{\"format\":\"dynamo\"}"}`:               {Release: "0.5.22", BlockSize: 1, DynamoEvents: true},
		`{"version":"0.5.22","page_size":64,"kv_events_config":"{\"publisher\":\"zmq\"}"}`:              {Release: "0.5.22", BlockSize: 64},
		`{"version":"0.0.0.dev1","page_size":64,"kv_events_config":null,"internal_states":[{"x":[1]}]}`: {BlockSize: 64},
	} {
		want.Name, want.Auto, want.Engine = "w", true, "sglang"
		got, err := kvatlas.SGLangWorker("w", []byte(answer))
		require.NoError(t, err, answer)
		require.Equal(t, want, got, answer)
		require.NoError(t, newAtlas(t).AddWorker(got), answer)
	}
	for _, bad := range []string{``, `{}`, `{"version":"0.5.9","page_size":"x"}`, `{"version":"0.5.9","page_size":-1}`,
		`{"version":"0.5.9","page_size":9000000000}`, `{"version":"0.5.9","kv_events_config":"{"}`} {
		_, err := kvatlas.SGLangWorker("w", []byte(bad))
		require.Error(t, err, bad)
	}
}

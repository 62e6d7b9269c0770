package kvevents

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/internal/golden"
)

func TestVLLMTarget(t *testing.T) {
	var recorded []struct{ Response json.RawMessage }
	require.NoError(t, json.Unmarshal(golden.Read(t, "vllm/server/0.32.0/kv-event-sources-dp2.json"), &recorded))
	got, err := VLLMTarget("w", "10.0.0.7", recorded[0].Response)
	require.NoError(t, err)
	require.Equal(t, Target{Worker: "w", Ranks: 2, Topic: "kv-events",
		Endpoints: []string{"tcp://10.0.0.7:5700", "tcp://10.0.0.7:5701"}, ReplayEndpoints: []string{"tcp://10.0.0.7:5800", "tcp://10.0.0.7:5801"}}, got)
	_, _, err = got.endpoints()
	require.NoError(t, err)

	got, err = VLLMTarget("w", "fd00::1", []byte(`{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://[::]:5"}}`))
	require.NoError(t, err)
	require.Equal(t, []string{"tcp://[fd00::1]:5"}, got.Endpoints)
	require.Empty(t, got.ReplayEndpoints)

	for answer, want := range map[string]string{
		`[]`: "kv_event_sources", `{}`: "no events",
		`{"0":{"enable_kv_cache_events":false}}`:                                         "no events",
		`{"1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5"}}`: "not rank 0",
		`{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5","topic":"a"},"1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:6","topic":"b"}}`:       "topics",
		`{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5","replay_endpoint":"tcp://*:7"},"1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:6"}}`: "1 of 2",
	} {
		_, err := VLLMTarget("w", "h", []byte(answer))
		require.ErrorContains(t, err, want, answer)
	}
}

func TestSGLangTarget(t *testing.T) {
	got, err := SGLangTarget("w", "10.0.0.7", []byte(`{"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":5557,"replay_endpoint_port_base":6557,"topic":"","block_size":16,"dp_size":2}}`))
	require.NoError(t, err)
	live, replay, err := got.endpoints()
	require.NoError(t, err)
	require.Equal(t, []string{"tcp://10.0.0.7:5557", "tcp://10.0.0.7:5558"}, live)
	require.Equal(t, []string{"tcp://10.0.0.7:6557", "tcp://10.0.0.7:6558"}, replay)
	for answer, want := range map[string]string{
		`x`: "server_info", `{}`: "no events", `{"kv_events":null}`: "no events", `{"kv_events":{"publisher":"null"}}`: "no events",
		`{"kv_events":{"publisher":"zmq","endpoint_port_base":65535,"dp_size":2}}`: "rank 1",
		`{"kv_events":{"publisher":"zmq","endpoint_port_base":5,"dp_size":99999}}`: "ranks",
	} {
		_, err := SGLangTarget("w", "h", []byte(answer))
		require.ErrorContains(t, err, want, answer)
	}
}

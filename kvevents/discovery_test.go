package kvevents

import (
	"encoding/json"
	"strconv"
	"strings"
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
		`{"kv_events":{"publisher":"zmq","endpoint_port_base":65535,"dp_size":2}}`:                                            "rank 1",
		`{"kv_events":{"publisher":"zmq","endpoint_port_base":5,"dp_size":99999}}`:                                            "ranks",
		`{"version":"0.5.14","enable_dp_attention":false,"kv_events":{"publisher":"zmq","endpoint_port_base":5,"dp_size":2}}`: "one port",
	} {
		_, err := SGLangTarget("w", "h", []byte(answer))
		require.ErrorContains(t, err, want, answer)
	}
}

// TestSGLangPortRule: each rank has a port of its own, but for data parallelism without
// DP attention before 0.5.15.
func TestSGLangPortRule(t *testing.T) {
	for _, server := range []string{`"version":"0.5.15","enable_dp_attention":false`, `"version":"0.5.14","enable_dp_attention":true`} {
		got, err := SGLangTarget("w", "h", []byte(`{`+server+`,"kv_events":{"publisher":"zmq","endpoint_port_base":5,"dp_size":2}}`))
		require.NoError(t, err)
		live, _, err := got.endpoints()
		require.NoError(t, err)
		require.Equal(t, []string{"tcp://h:5", "tcp://h:6"}, live)
	}
}

// TestSGLangLocalSources: the sources as SGLang's publishers describe them, where two
// ranks run on one host.
func TestSGLangLocalSources(t *testing.T) {
	for _, release := range []string{"0.5.22", "0.5.23"} {
		var sources []string
		for line := range strings.SplitSeq(string(golden.Read(t, "sglang/frames/frames-"+release+".jsonl")), "\n") {
			var op struct {
				Op     string
				Source json.RawMessage
			}
			if json.Unmarshal([]byte(line), &op) == nil && op.Op == "describe_local_source" {
				rank := len(sources)
				text := strings.NewReplacer("LIVE+RANK", strconv.Itoa(5557+rank), "REPLAY+RANK", strconv.Itoa(6557+rank), `"topic":"kv-events"`, `"topic":""`).Replace(string(op.Source))
				sources = append(sources, text)
			}
		}
		require.Len(t, sources, 2)
		answer := func(list ...string) []byte {
			return []byte(`{"kv_events":{"publisher":"zmq","endpoint_port_base":1,"dp_size":2},"local_kv_event_sources":[` + strings.Join(list, ",") + "]}")
		}
		got, err := SGLangTarget("w", "10.0.0.7", answer(sources[1], sources[0]))
		require.NoError(t, err)
		require.Equal(t, Target{Worker: "w", Ranks: 2,
			Endpoints:       []string{"tcp://10.0.0.7:5557", "tcp://10.0.0.7:5558"},
			ReplayEndpoints: []string{"tcp://10.0.0.7:6557", "tcp://10.0.0.7:6558"}}, got)
		_, err = SGLangTarget("w", "h", answer(sources[1]))
		require.ErrorContains(t, err, "rank 1 where 0")
		_, err = SGLangTarget("w", "h", answer(sources[0], strings.Replace(sources[1], `"topic":""`, `"topic":"x"`, 1)))
		require.ErrorContains(t, err, "topics")
		got, err = SGLangTarget("w", "h", answer())
		require.NoError(t, err)
		require.Equal(t, "tcp://h:1", got.Endpoint)
	}
	// A socket that is bound to one address is reached there.
	got, err := SGLangTarget("w", "h", []byte(`{"local_kv_event_sources":[{"dp_rank":0,"endpoint":"tcp://10.1.1.1:5","topic":"a"}]}`))
	require.NoError(t, err)
	require.Equal(t, []string{"tcp://10.1.1.1:5"}, got.Endpoints)
	require.Empty(t, got.ReplayEndpoints)
	_, err = SGLangTarget("w", "h", []byte(`{"local_kv_event_sources":[{"dp_rank":0,"endpoint":"tcp://10.1.1.1:70000"}]}`))
	require.Error(t, err)
}

package kvevents

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// ErrNoEvents is returned when an engine's answer says that it publishes no
// events.
const ErrNoEvents = constError("kvevents: the engine publishes no events")

// maxDiscovered bounds the ranks of a discovered engine.
const maxDiscovered = 1024

// VLLMTarget reads vLLM's answer to GET /kv_event_sources (0.32), which lists the
// endpoints that each rank really has. host is the worker's address, which takes
// the place of wildcards. The error wraps [ErrNoEvents] when no rank publishes.
//
// A publisher that connects instead of binding (an endpoint without a wildcard)
// is not told apart here: its endpoint is taken as one to dial.
func VLLMTarget(worker, host string, answer []byte) (Target, error) {
	var ranks map[string]struct {
		Enabled   bool   `json:"enable_kv_cache_events"`
		Publisher string `json:"publisher"`
		Endpoint  string `json:"endpoint"`
		Replay    string `json:"replay_endpoint"`
		Topic     string `json:"topic"`
	}
	if err := json.Unmarshal(answer, &ranks); err != nil {
		return Target{}, fmt.Errorf("kvevents: answer of /kv_event_sources of worker %q: %w", worker, err)
	}
	if len(ranks) > maxDiscovered {
		return Target{}, fmt.Errorf("kvevents: worker %q has %d ranks, want at most %d", worker, len(ranks), maxDiscovered)
	}
	t := Target{Worker: worker, Ranks: len(ranks)}
	for rank := range len(ranks) {
		r, ok := ranks[strconv.Itoa(rank)]
		switch {
		case !ok:
			return Target{}, fmt.Errorf("kvevents: worker %q names %d ranks, but not rank %d", worker, len(ranks), rank)
		case !r.Enabled || r.Publisher != "zmq" || r.Endpoint == "":
			return Target{}, fmt.Errorf("%w (worker %q, rank %d: enabled %v, publisher %q)", ErrNoEvents, worker, rank, r.Enabled, r.Publisher)
		case rank > 0 && r.Topic != t.Topic:
			return Target{}, fmt.Errorf("kvevents: worker %q publishes under topics %q and %q; add its ranks as workers of their own", worker, t.Topic, r.Topic)
		}
		t.Topic = r.Topic
		t.Endpoints = append(t.Endpoints, reachable(r.Endpoint, host))
		if r.Replay != "" {
			t.ReplayEndpoints = append(t.ReplayEndpoints, reachable(r.Replay, host))
		}
	}
	if len(ranks) == 0 {
		return Target{}, fmt.Errorf("%w (worker %q)", ErrNoEvents, worker)
	}
	if n := len(t.ReplayEndpoints); n > 0 && n < len(ranks) {
		return Target{}, fmt.Errorf("kvevents: worker %q has replay endpoints for %d of %d ranks", worker, n, len(ranks))
	}
	return t, nil
}

// SGLangTarget reads SGLang's answer to GET /server_info: the sockets really bound
// from local_kv_event_sources (0.5.22 on), else the ports from kv_events (0.5.13 on),
// to which each rank adds its number. host is the worker's address, which takes the
// place of wildcards and loopback addresses. The error wraps [ErrNoEvents] when it
// publishes none. From source; of the answer only the sources themselves are recorded.
func SGLangTarget(worker, host string, answer []byte) (Target, error) {
	var info struct {
		Events *struct {
			Publisher string `json:"publisher"`
			Port      int    `json:"endpoint_port_base"`
			Replay    int    `json:"replay_endpoint_port_base"`
			Topic     string `json:"topic"`
			Ranks     int    `json:"dp_size"`
		} `json:"kv_events"`
		Sources     []sglangSource `json:"local_kv_event_sources"`
		Version     string         `json:"version"`
		DPAttention *bool          `json:"enable_dp_attention"`
	}
	if err := json.Unmarshal(answer, &info); err != nil {
		return Target{}, fmt.Errorf("kvevents: answer of /server_info of worker %q: %w", worker, err)
	}
	if len(info.Sources) > 0 {
		return sglangSources(worker, host, info.Sources)
	}
	e := info.Events
	if e == nil || e.Publisher != "zmq" {
		return Target{}, fmt.Errorf("%w (worker %q)", ErrNoEvents, worker)
	}
	if e.Ranks < 0 || e.Ranks > maxDiscovered {
		return Target{}, fmt.Errorf("kvevents: worker %q has %d ranks, want 0 to %d", worker, e.Ranks, maxDiscovered)
	}
	if v, err := parseVersion(info.Version); err == nil && before(v, [3]int{0, 5, 15}) && e.Ranks > 1 && info.DPAttention != nil && !*info.DPAttention {
		return Target{}, fmt.Errorf("kvevents: worker %q: SGLang before 0.5.15 gives the %d ranks of data parallelism without DP attention one port: "+
			"they cannot be told apart; run each as a server of its own", worker, e.Ranks)
	}
	t := Target{Worker: worker, Ranks: max(e.Ranks, 1), Topic: e.Topic, Endpoint: "tcp://" + net.JoinHostPort(host, strconv.Itoa(e.Port))}
	if e.Replay != 0 {
		t.ReplayEndpoint = "tcp://" + net.JoinHostPort(host, strconv.Itoa(e.Replay))
	}
	if _, _, err := t.endpoints(); err != nil { // ports out of range
		return Target{}, err
	}
	return t, nil
}

// sglangSource is a publisher as SGLang's describe_local_source has it.
type sglangSource struct {
	Rank     int    `json:"dp_rank"`
	Endpoint string `json:"endpoint"`
	Replay   string `json:"replay_endpoint"`
	Topic    string `json:"topic"`
}

// sglangSources makes a target of the sockets that are bound on one host.
func sglangSources(worker, host string, sources []sglangSource) (Target, error) {
	if len(sources) > maxDiscovered {
		return Target{}, fmt.Errorf("kvevents: worker %q has %d ranks, want at most %d", worker, len(sources), maxDiscovered)
	}
	slices.SortFunc(sources, func(a, b sglangSource) int { return a.Rank - b.Rank })
	t := Target{Worker: worker, Ranks: len(sources), Topic: sources[0].Topic}
	for rank, s := range sources {
		switch {
		case s.Rank != rank:
			return Target{}, fmt.Errorf("kvevents: worker %q has rank %d where %d was looked for; add the ranks of each host as workers of their own", worker, s.Rank, rank)
		case s.Topic != t.Topic:
			return Target{}, fmt.Errorf("kvevents: worker %q publishes under topics %q and %q; add its ranks as workers of their own", worker, t.Topic, s.Topic)
		case (s.Replay == "") != (sources[0].Replay == ""):
			return Target{}, fmt.Errorf("kvevents: worker %q has replay endpoints for some of its ranks only", worker)
		}
		t.Endpoints = append(t.Endpoints, reachable(s.Endpoint, host, "127.0.0.1", "[::1]"))
		if s.Replay != "" {
			t.ReplayEndpoints = append(t.ReplayEndpoints, reachable(s.Replay, host, "127.0.0.1", "[::1]"))
		}
	}
	for _, endpoint := range slices.Concat(t.Endpoints, t.ReplayEndpoints) {
		if _, err := RankEndpoints(endpoint, 1); err != nil {
			return Target{}, err
		}
	}
	return t, nil
}

// reachable puts the worker's host in place of a wildcard, or of others that only the
// worker can reach.
func reachable(endpoint, host string, others ...string) string {
	rest, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return endpoint
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 || !slices.Contains(append([]string{"*", "0.0.0.0", "::", "[::]"}, others...), rest[:i]) {
		return endpoint
	}
	return "tcp://" + net.JoinHostPort(strings.Trim(host, "[]"), rest[i+1:])
}

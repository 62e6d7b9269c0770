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

// SGLangTarget reads SGLang's answer to GET /server_info (from 0.5.13): the ports
// from kv_events, to which each rank adds its number. host is the worker's address;
// the server's own may be a wildcard. The error wraps [ErrNoEvents] when it
// publishes none. From source; not recorded.
func SGLangTarget(worker, host string, answer []byte) (Target, error) {
	var info struct {
		Events *struct {
			Publisher string `json:"publisher"`
			Port      int    `json:"endpoint_port_base"`
			Replay    int    `json:"replay_endpoint_port_base"`
			Topic     string `json:"topic"`
			Ranks     int    `json:"dp_size"`
		} `json:"kv_events"`
	}
	if err := json.Unmarshal(answer, &info); err != nil {
		return Target{}, fmt.Errorf("kvevents: answer of /server_info of worker %q: %w", worker, err)
	}
	e := info.Events
	if e == nil || e.Publisher != "zmq" {
		return Target{}, fmt.Errorf("%w (worker %q)", ErrNoEvents, worker)
	}
	if e.Ranks < 0 || e.Ranks > maxDiscovered {
		return Target{}, fmt.Errorf("kvevents: worker %q has %d ranks, want 0 to %d", worker, e.Ranks, maxDiscovered)
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

// reachable puts the worker's host in place of a wildcard.
func reachable(endpoint, host string) string {
	rest, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return endpoint
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 || !slices.Contains([]string{"*", "0.0.0.0", "::", "[::]"}, rest[:i]) {
		return endpoint
	}
	return "tcp://" + net.JoinHostPort(strings.Trim(host, "[]"), rest[i+1:])
}

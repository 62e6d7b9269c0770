package kvevents

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// maxRanks is how many ranks can have a port each.
const maxRanks = 65535

// RankEndpoints returns the endpoint of each data-parallel rank of an engine,
// from the one that it was configured with: port + rank with tcp, "_dp<rank>"
// appended with inproc, as vLLM and SGLang do. Other endpoints have one rank
// only. A port that leaves the range of ports is an error that names it and
// the rank.
func RankEndpoints(base string, ranks int) ([]string, error) {
	if ranks < 1 || ranks > maxRanks {
		return nil, fmt.Errorf("kvevents: %d ranks, want 1 to %d", ranks, maxRanks)
	}
	scheme, rest, ok := strings.Cut(base, "://")
	if !ok || rest == "" {
		return nil, fmt.Errorf("kvevents: endpoint %q, want tcp://host:port, ipc:///path or inproc://name", base)
	}
	if ranks == 1 && scheme != "tcp" {
		return []string{base}, nil
	}
	all := make([]string, ranks)
	switch scheme {
	case "inproc":
		for rank := range all {
			all[rank] = base
			if rank > 0 {
				all[rank] = fmt.Sprintf("%s_dp%d", base, rank)
			}
		}
	case "tcp":
		host, text, err := net.SplitHostPort(rest)
		if err != nil {
			return nil, fmt.Errorf("kvevents: endpoint %q, want tcp://host:port: %w", base, err)
		}
		port, err := strconv.Atoi(text)
		if err != nil || port < 1 || port > 65535 {
			return nil, fmt.Errorf("kvevents: endpoint %q has port %q, want 1 to 65535", base, text)
		}
		for rank := range all {
			if port+rank > 65535 {
				return nil, fmt.Errorf("kvevents: endpoint %q: rank %d of %d would be at port %d, want at most 65535", base, rank, ranks, port+rank)
			}
			all[rank] = "tcp://" + net.JoinHostPort(host, strconv.Itoa(port+rank))
		}
	default:
		return nil, fmt.Errorf("kvevents: endpoint %q with %d ranks, want tcp:// or inproc://", base, ranks)
	}
	return all, nil
}

// Topic is a topic in the form "kv@pod:port@model" or "kv@pod@model" that some
// deployments give their engines.
type Topic struct {
	Pod   string // name or address; IPv6 without brackets
	Port  string // may be empty
	Model string // everything after the second "@"
}

// ParseTopic reads a topic of that form; ok is false for any other. A topic
// never decides who a worker is, except where many publishers share a bound
// socket; it is there to be checked and shown.
func ParseTopic(topic string) (t Topic, ok bool) {
	prefix, rest, ok := strings.Cut(topic, "@")
	if !ok || prefix != "kv" {
		return Topic{}, false
	}
	pod, model, ok := strings.Cut(rest, "@")
	if !ok || pod == "" || model == "" {
		return Topic{}, false
	}
	t = Topic{Pod: pod, Model: model}
	if host, port, err := net.SplitHostPort(pod); err == nil {
		t.Pod, t.Port = host, port
	}
	return t, t.Pod != ""
}

// topicFits reports whether a topic is the one wanted, or continues it after
// "@" or ":". A subscription is a prefix of bytes: "kv@10.0.0.1" also brings
// "kv@10.0.0.10@model", which is another worker's.
func topicFits(topic []byte, want string) bool {
	if len(topic) < len(want) || string(topic[:len(want)]) != want {
		return false
	}
	if want == "" || len(topic) == len(want) {
		return true
	}
	border := func(c byte) bool { return c == '@' || c == ':' }
	return border(topic[len(want)]) || border(want[len(want)-1])
}

// payloadRank reads the rank of a batch without decoding its events; 0 when it
// has none.
func payloadRank(payload []byte) (rank int64, ok bool) {
	c := cursor{buf: payload}
	if n, f := c.arrayLen(); f == 0 {
		if n < 3 {
			return 0, true
		}
		for range 2 { // timestamp, events
			if c.skip() != 0 {
				return 0, false
			}
		}
		return c.rankValue()
	}
	n, f := c.mapLen()
	if f != 0 {
		return 0, false
	}
	for range n {
		key, f := c.text(false)
		if f != 0 {
			return 0, false
		}
		if string(key) == "data_parallel_rank" || string(key) == "attn_dp_rank" {
			return c.rankValue()
		}
		if c.skip() != 0 {
			return 0, false
		}
	}
	return 0, true
}

func (c *cursor) rankValue() (int64, bool) {
	if c.takeNil() {
		return 0, true
	}
	v, f := c.int(0, 1<<31-1)
	return v, f == 0
}

package kvevents

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/stretchr/testify/require"
)

// op is one line of a recording of a server.
type op struct {
	Op      string
	Label   string
	Socket  string
	Start   any
	Seq     uint64
	Server  int
	Port    int `json:"port_offset"`
	Frames  []string
	Payload string `json:"payload_b64"`
}

func readOps(t testing.TB, name string) (ops []op) {
	for _, line := range bytes.Split(bytes.TrimSpace(golden.Read(t, name)), []byte("\n")) {
		var o op
		require.NoError(t, json.Unmarshal(line, &o))
		ops = append(ops, o)
	}
	return ops
}

func (o op) frames(t testing.TB) (all [][]byte) {
	for _, f := range o.Frames {
		b, err := base64.StdEncoding.DecodeString(f)
		require.NoError(t, err)
		all = append(all, b)
	}
	return all
}

// TestRecordedTruthThroughStream: the messages of every truth session are one
// exact stream each, and give what applying them one by one gives.
func TestRecordedTruthThroughStream(t *testing.T) {
	for _, name := range golden.Files(t, "vllm/server/*/truth-*.jsonl") {
		r := newRig(t, StreamOptions{Worker: name})
		want := map[uint64]int{}
		var b Batch
		for _, o := range readOps(t, name) {
			if o.Op != "event" {
				continue
			}
			payload, err := base64.StdEncoding.DecodeString(o.Payload)
			require.NoError(t, err)
			r.Message(r.now, 1, Message{Topic: []byte("kv-events"), Seq: o.Seq, Payload: payload})
			r.wantState(Live)
			require.NoError(t, r.dec.Decode(payload, &b))
			applyTo(want, &b)
			require.Equal(t, want, r.d.blocks, name)
		}
		require.Empty(t, r.d.losses)
		require.NotEmpty(t, r.d.blocks)
	}
}

// TestRecordedReplay: every recorded answer of a DEALER goes through a stream
// that asked for it; a buffer that was cut is a loss by name.
func TestRecordedReplay(t *testing.T) {
	for _, name := range golden.Files(t, "vllm/server/*/replay-*.jsonl") {
		var r *rig
		var start uint64
		first, count := int64(-1), 0
		for _, o := range readOps(t, name) {
			switch o.Op {
			case "replay_request":
				r = nil
				number, isNumber := o.Start.(float64)
				if o.Socket != "DEALER" || !isNumber {
					continue // a stream asks with 8 bytes, by a DEALER
				}
				start, first, count = uint64(number), -1, 0
				r = newRig(t, StreamOptions{Worker: name, Replay: true})
				if start > 0 { // a stream that knows what was before
					r.next, r.started = start, true
				}
				r.Connected(r.now, 1)
				if start > 0 {
					r.ask(r.now)
				}
				r.wantReplay(int(start))
			case "replay_reply":
				if r == nil {
					continue
				}
				reply, err := ParseReplay(o.frames(t))
				require.NoError(t, err)
				require.Equal(t, strings.Contains(name, "0.29.0") || strings.Contains(name, "0.32.0"), reply.Topic != nil, name)
				if !reply.End {
					count++
					if first < 0 {
						first = int64(reply.Seq)
					}
				}
				r.Reply(r.now, r.lastID, reply)
			case "replay_done":
				if r == nil {
					continue
				}
				r.wantReplay(-1)
				require.EqualValues(t, count, r.Stats().Applied, "%s from %d", name, start)
				switch {
				case count == 0: // beyond the end
					require.EqualValues(t, start, r.Status(r.now).Next)
					require.Empty(t, r.d.losses)
				case first > int64(start): // the buffer was cut
					require.Contains(t, name, "truncated")
					require.Equal(t, []Loss{{Worker: name, From: start, To: uint64(first) - 1, Cause: LossJoined}}, r.d.losses)
					if r.Stats().ClearedEvents > 0 {
						r.wantState(Live) // a clear after the cut: nothing is unknown any more
					} else {
						r.wantState(Degraded)
					}
				default:
					require.Empty(t, r.d.losses)
					require.EqualValues(t, int(start)+count, r.Status(r.now).Next)
					r.wantState(Live)
				}
			}
		}
	}
}

// TestRecordedRestart: one socket that stayed connected while the server was
// killed and started again: one restart, at the right message, nothing left of
// before.
func TestRecordedRestart(t *testing.T) {
	for _, name := range golden.Files(t, "vllm/server/*/events-restart.jsonl") {
		r := newRig(t, StreamOptions{Worker: name})
		restarts, want := 0, map[uint64]int{}
		var b Batch
		for _, o := range readOps(t, name) {
			if o.Op != "event" {
				continue
			}
			m, err := ParseMessage(o.frames(t))
			require.NoError(t, err)
			if o.Server == 2 && restarts == 0 {
				restarts++
				clear(want)
				require.Zero(t, m.Seq)
			}
			r.Message(r.now, 1, m)
			require.NoError(t, r.dec.Decode(m.Payload, &b))
			applyTo(want, &b)
			require.EqualValues(t, restarts, r.Stats().Restarts, name)
			require.Equal(t, want, r.d.blocks, name)
		}
		require.Equal(t, 1, restarts)
		require.Equal(t, 1, strings.Count(strings.Join(r.d.log, ","), "engine restarted"))
		r.wantState(Live) // the successor was heard from its first batch on
		require.Len(t, r.d.losses, 1)
		require.Equal(t, LossJoined, r.d.losses[0].Cause)
	}
}

// TestRecordedConcurrent: sessions that begin somewhere in the middle.
func TestRecordedConcurrent(t *testing.T) {
	for _, name := range golden.Files(t, "vllm/server/*/events-concurrent.jsonl") {
		r := newRig(t, StreamOptions{})
		n := 0
		for _, o := range readOps(t, name) {
			if o.Op == "event" {
				m, err := ParseMessage(o.frames(t))
				require.NoError(t, err)
				r.Message(r.now, 1, m)
				n++
			}
		}
		require.EqualValues(t, n, r.Stats().Applied)
		require.Zero(t, r.Stats().Gaps-uint64(len(r.d.losses)))
	}
}

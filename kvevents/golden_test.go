package kvevents

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"path"
	"strings"
	"testing"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/stretchr/testify/require"
)

// recorded is one message of a recording, with its frames where they were kept.
type recorded struct {
	op      string
	line    int
	frames  [][]byte
	payload []byte // nil for the end marker of a replay
	server  int    // of a restart recording
	end     bool
}

// readRecording returns all messages of any recorded file, in order.
func readRecording(t testing.TB, name string) (msgs []recorded) {
	t.Helper()
	for i, line := range bytes.Split(golden.Read(t, name), []byte("\n")) {
		var l struct {
			Op      string
			Frames  []string
			Payload string `json:"payload_b64"`
			Server  int
		}
		if len(line) == 0 || json.Unmarshal(line, &l) != nil || l.Op == "replay_request" || len(l.Frames) == 0 && l.Payload == "" {
			continue
		}
		m := recorded{op: l.Op, line: i + 1, server: l.Server}
		for _, f := range l.Frames {
			b, err := base64.StdEncoding.DecodeString(f)
			if err != nil {
				break // sglang's requests are told apart by their kind below
			}
			m.frames = append(m.frames, b)
		}
		switch {
		case l.Payload != "":
			var err error
			m.payload, err = base64.StdEncoding.DecodeString(l.Payload)
			require.NoError(t, err)
		case l.Op == "event" || l.Op == "live":
			msg, err := ParseMessage(m.frames)
			require.NoError(t, err, "%s:%d", name, m.line)
			m.payload = msg.Payload
		default:
			reply, err := ParseReplay(m.frames)
			require.NoError(t, err, "%s:%d", name, m.line)
			m.end = reply.End
			if !m.end {
				m.payload = reply.Payload
			}
		}
		msgs = append(msgs, m)
	}
	require.NotEmpty(t, msgs, name)
	return msgs
}

// counts has the form of the entries of COUNTS.json.
func counts(t testing.TB, name string) map[string]int {
	got := map[string]int{}
	var dec Decoder
	var b Batch
	for _, m := range readRecording(t, name) {
		if m.payload == nil {
			continue
		}
		require.NoError(t, dec.Decode(m.payload, &b), "%s:%d", name, m.line)
		require.Empty(t, b.Malformed, "%s:%d", name, m.line)
		require.Zero(t, b.UnknownTypes+b.UnknownFields, "%s:%d", name, m.line)
		got["batches"]++
		for _, ev := range b.Events {
			got[ev.Kind.String()]++
			switch ev.Kind {
			case BlockStored:
				got["stored_hashes"] += len(ev.Hashes)
			case BlockRemoved:
				got["removed_hashes"] += len(ev.Hashes)
			}
		}
	}
	return got
}

// TestRecordedCounts: every frame of every recorded server decodes whole, to
// the numbers that another decoder counted.
func TestRecordedCounts(t *testing.T) {
	var want map[string]map[string]int
	require.NoError(t, json.Unmarshal(golden.Read(t, "vllm/server/COUNTS.json"), &want))
	files := golden.Files(t, "vllm/server/*/*.jsonl")
	seen := 0
	for _, name := range files {
		short := strings.TrimPrefix(name, "vllm/server/")
		got := counts(t, name)
		w, ok := want[short]
		if !ok {
			t.Errorf("%s: not in COUNTS.json, counted %v", short, got)
			continue
		}
		seen++
		require.Equal(t, w, got, short)
	}
	require.Equal(t, len(want), seen)
}

// TestRecordedRoundTrip: encoding what was decoded in the form of the release
// gives the bytes that the engine sent.
func TestRecordedRoundTrip(t *testing.T) {
	var dec Decoder
	var b, again Batch
	payloads := 0
	check := func(name, engine, version string) {
		form, err := FormFor(engine, version)
		require.NoError(t, err, name)
		for _, m := range readRecording(t, name) {
			if m.payload == nil {
				continue
			}
			require.NoError(t, dec.Decode(m.payload, &b), "%s:%d", name, m.line)
			require.Empty(t, b.Malformed, "%s:%d", name, m.line)
			require.Zero(t, b.UnknownTypes+b.UnknownFields, "%s:%d", name, m.line)
			payloads++
			digests := false
			for _, ev := range b.Events {
				digests = digests || ev.HashBytes != 0
				require.NotEqual(t, TokensOpaque, ev.TokenForm)
				require.True(t, form.Admits(&ev) && !form.Omits(&ev), "%s:%d", name, m.line)
			}
			got := AppendBatch(nil, &b, form)
			if !digests {
				if at := firstDifference(m.payload, got); at >= 0 {
					t.Fatalf("%s:%d: byte %d: want ...%x, got ...%x", name, m.line, at, around(m.payload, at), around(got, at))
				}
				continue
			}
			require.NoError(t, dec.Decode(AppendBatch(nil, &b, form.WithDigests(32)), &again))
			requireSameBatch(t, &b, &again, "%s:%d", name, m.line)
		}
	}
	for _, pattern := range []string{"vllm/server/*/*.jsonl", "vllm/truth/*/*.jsonl", "vllm/tiers/*/*.jsonl", "vllm/scheduler/*.*/*.jsonl"} {
		for _, name := range golden.Files(t, pattern) {
			check(name, "vllm", path.Base(path.Dir(name)))
		}
	}
	for _, pattern := range []string{"sglang/frames/*.jsonl", "sglang/truth/*.jsonl"} {
		for _, name := range golden.Files(t, pattern) {
			version, _, _ := strings.Cut(strings.TrimPrefix(path.Base(name), "frames-"), "-")
			check(name, "sglang", strings.TrimSuffix(version, ".jsonl"))
		}
	}
	t.Logf("%d payloads", payloads)
}

func firstDifference(a, b []byte) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

func around(b []byte, at int) []byte {
	return b[min(max(at-20, 0), len(b)):min(at+20, len(b))]
}

// requireSameBatch compares what two payloads decoded to, the length of
// digests and the encoding aside.
func requireSameBatch(t testing.TB, want, got *Batch, msg ...any) {
	t.Helper()
	require.Equal(t, want.Timestamp, got.Timestamp, msg...)
	require.Equal(t, want.HasRank, got.HasRank, msg...)
	require.Equal(t, want.Rank, got.Rank, msg...)
	require.Equal(t, len(want.Events), len(got.Events), msg...)
	for i := range want.Events {
		w, g := want.Events[i], got.Events[i]
		w.HashBytes, g.HashBytes, w.Wire, g.Wire = 0, 0, 0, 0
		require.Equal(t, w, g, msg...)
	}
}

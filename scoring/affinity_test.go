package scoring

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func headers(kv ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(kv); i += 2 {
		h[kv[i]] = []string{kv[i+1]}
	}
	return h
}

func TestSessionIDOrder(t *testing.T) {
	// Each step with everything that comes after it.
	all := []struct{ name, value string }{
		{"X-LiteLLM-Trace-Id", "trace"},
		{"x-litellm-session-id", "litellm"},
		{"X-Claude-Code-Session-Id", "e96634a3-fa28"},
		{"Session-Id", "codex1"},
		{"session_id", "codex2"},
		{"Thread-Id", "codex3"},
		{"conversation_id", "codex4"},
		{"X-Session-Id", "short"},
		{"Baggage", "a=1,session.id=b%20c;p=1 , session.id=later"},
	}
	want := []string{"trace", "litellm", "e96634a3-fa28", "codex1", "codex2", "codex3", "codex4", "short", "b c"}
	for i := range all {
		h := headers("User-Agent", "codex_cli_rs/0.99")
		for _, x := range all[i:] {
			h[x.name] = []string{x.value}
		}
		require.Equal(t, want[i], SessionID(h, ""), "from %s", all[i].name)
	}
	plain := headers("User-Agent", "curl", "session-id", "codex1", "thread-id", "t", "x-session-id", "x")
	require.Equal(t, "x", SessionID(plain, "user_a_session_b"), "codex headers count for codex only")
	require.Equal(t, "b", SessionID(headers("baggage", "session.id=z"), "user_a_account_c_session_b"))
	require.Equal(t, "j", SessionID(nil, `{"device_id":"d","session_id":"j"}`))
	require.Equal(t, "", SessionID(nil, "user_only"))
	require.Equal(t, "", SessionID(nil, `{"session_id":`))
	require.Equal(t, "", SessionID(headers("x-acme-session-id", "1234567"), ""), "7 characters")
	require.Equal(t, "", SessionID(headers("x-acme-session-id", "1-2-3-4-5-6-7"), ""))
	require.Equal(t, "1-2-3-4-5-6-7-8", SessionID(headers("x-acme-session-id", "1-2-3-4-5-6-7-8"), ""))
	require.Equal(t, "aaaaaaaa", SessionID(headers("x-b-session-id", "bbbbbbbb", "X-A-Session-Id", "aaaaaaaa"), ""))
	require.Equal(t, "", SessionID(headers("x--session-id", "", "baggage", "session.id"), ""))
	require.Equal(t, "%zz", SessionID(headers("baggage", "session.id=%zz"), ""))
	require.Equal(t, "l", SessionID(headers("x-litellm-trace-id", "", "x-litellm-session-id", "l"), ""))
}

func TestHashAPIKey(t *testing.T) {
	require.Equal(t, "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", HashAPIKey("secret"))
	require.Equal(t, HashAPIKey("secret"), HashAPIKey(strings.ToUpper(HashAPIKey("secret"))))
	require.Equal(t, "", HashAPIKey(""))
}

func TestPromptPin(t *testing.T) {
	pin := func(body string) string {
		key, ok := PromptPin([]byte(body))
		require.Equal(t, ok, key != "")
		return key
	}
	const mark = `"cache_control":{"type":"ephemeral"}`
	base := pin(`{"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"a",` + mark + `},{"type":"text","text":"b"}]}]}`)
	require.NotEmpty(t, base)
	require.Equal(t, base, pin(`{"model":"m","messages":[{"content":[{"text":"a",`+mark+`,"type":"text"},{"text":"other"}],"role":"user"},{"role":"user","content":"more"}],"system":"s"}`),
		"what follows the last mark, and the order of keys, do not matter")
	require.NotEqual(t, base, pin(`{"system":"t","messages":[{"role":"user","content":[{"type":"text","text":"a",`+mark+`}]}]}`))
	require.NotEqual(t, base, pin(`{"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"a",`+mark+`},{"type":"text","text":"b",`+mark+`}]}]}`))
	require.NotEmpty(t, pin(`{"tools":[{"name":"f",`+mark+`}]}`))
	require.NotEmpty(t, pin(`{"messages":[{"role":"system","content":"x",`+mark+`}]}`))
	for _, none := range []string{`{}`, ``, `[]`, `{"messages":[{"role":"user","content":"a"}]}`, `{"messages":[{"content":[{"cache_control":null}]}]}`, `{"messages":7}`, `{"messages":[1,null,[]]}`} {
		require.Empty(t, pin(none), none)
	}
}

func FuzzPromptPin(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"text":"a","cache_control":{}}]}]}`))
	f.Add([]byte(`{"tools":[{"cache_control":1}],"system":[{}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, ok := PromptPin(body)
		if b, again := PromptPin(body); a != b || ok != again {
			t.Fatal("not repeatable")
		}
	})
}

func TestAffinity(t *testing.T) {
	h := newHand()
	store, err := NewLocalPins(LocalPinsOptions{Now: h.now})
	require.NoError(t, err)
	a, err := NewAffinity(AffinityOptions{Store: store})
	require.NoError(t, err)
	p := mustNew(t, Options{Filters: []Filter{a}, Scorers: []WeightedScorer{{Scorer: Least{Requests}}}, Random: Seeded(1)})
	cs := []Candidate{worker(0, 0, 0), worker(1, 0, 5), worker(2, 0, 5)}
	var d Decision
	choose := func(pins Pins, cs []Candidate) string {
		require.NoError(t, p.Decide(&Request{Pins: pins}, cs, &d))
		return d.Chosen.Name
	}
	alice := Pins{Session: "alice"}
	require.Equal(t, "w0", choose(alice, cs))
	cs[0].Load.Requests, cs[1].Load.Requests = Known(8), Known(0)
	require.Equal(t, "w0", choose(alice, cs), "pinned although others are idle")
	require.Equal(t, "w1", choose(Pins{Session: "bob"}, cs))
	require.Equal(t, "w1", choose(Pins{Scope: "other model", Session: "alice"}, cs))

	// The pin lasts an hour from its last use.
	for range 3 {
		h.advance(59 * time.Minute)
		require.Equal(t, "w0", choose(alice, cs))
	}
	h.advance(time.Hour)
	require.Equal(t, "w1", choose(alice, cs), "expired")
	require.Equal(t, "w1", choose(alice, cs))

	// Gone, and overloaded: let go and pinned anew.
	require.Equal(t, "w0", choose(alice, cs[:1]))
	require.Equal(t, "w0", choose(alice, cs))
	cs[0].Load.Requests = Known(100) // the others have 2.5 on average: the limit is 13
	require.Equal(t, "w1", choose(alice, cs))
	cs[0].Load.Requests = Known(0)
	require.Equal(t, "w1", choose(alice, cs), "the new pin stays")

	// A response goes where the first one came from, before the session.
	a.Responded("", "resp_1", "w2")
	require.Equal(t, "w2", choose(Pins{Response: "resp_1", Session: "alice"}, cs))
	require.Equal(t, "w1", choose(Pins{Response: "resp_unknown", Session: "alice"}, cs))
	// API key and prompt, each by itself; a prompt for 5 minutes.
	cs[1].Load.Requests = Known(1)
	require.Equal(t, "w0", choose(Pins{APIKey: "k"}, cs))
	require.Equal(t, "w0", choose(Pins{Prompt: "p"}, cs))
	cs[0].Load.Requests, cs[1].Load.Requests, cs[2].Load.Requests = Known(1), Known(0), Known(1)
	require.Equal(t, "w0", choose(Pins{Prompt: "p"}, cs))
	h.advance(5 * time.Minute)
	require.Equal(t, "w1", choose(Pins{Prompt: "p"}, cs))
	require.Equal(t, "w0", choose(Pins{APIKey: "k"}, cs))
	require.NoError(t, p.Decide(&Request{Pins: Pins{Session: "dry"}, DryRun: true}, cs, &d))
	_, ok := store.Get(PinKey{PinSession, "", "dry"}, time.Hour)
	require.False(t, ok)

	off, err := NewAffinity(AffinityOptions{Session: -1})
	require.NoError(t, err)
	off.Chosen(&Request{Pins: alice}, &cs[0])
	require.Equal(t, -1, off.pinned(&Request{Pins: alice}, []*Candidate{&cs[0]}))
	_, err = NewAffinity(AffinityOptions{OverRatio: -1})
	require.ErrorIs(t, err, ErrOption)
	_, err = NewLocalPins(LocalPinsOptions{Capacity: -1})
	require.ErrorIs(t, err, ErrOption)
}

func TestAffinityScorer(t *testing.T) {
	a, err := NewAffinity(AffinityOptions{})
	require.NoError(t, err)
	p := mustNew(t, Options{Scorers: []WeightedScorer{{Scorer: Prefix{}, Weight: 1}, {Scorer: a.Scorer(), Weight: 0.5}}, Random: Seeded(1)})
	var d Decision
	req := &Request{Blocks: 10, Pins: Pins{Session: "s"}}
	require.NoError(t, p.Decide(req, []Candidate{worker(0, 1, 0), worker(1, 0, 0)}, &d))
	require.NoError(t, p.Decide(req, []Candidate{worker(0, 1, 0), worker(1, 5, 0)}, &d))
	require.Equal(t, []float64{0.6, 0.5}, d.Totals)
	require.NoError(t, p.Decide(req, []Candidate{worker(0, 1, 0), worker(1, 7, 0)}, &d))
	require.Equal(t, "w1", d.Chosen.Name)
}

func TestLocalPinsBoundedAndFirstWriterWins(t *testing.T) {
	h := newHand()
	s, err := NewLocalPins(LocalPinsOptions{Capacity: 3, Now: h.now})
	require.NoError(t, err)
	key := func(i int) PinKey { return PinKey{PinSession, "", fmt.Sprint(i)} }
	require.Equal(t, "a", s.Claim(key(1), "a", time.Hour))
	require.Equal(t, "a", s.Claim(key(1), "b", time.Hour))
	s.Claim(key(2), "a", time.Hour)
	s.Claim(key(3), "a", time.Hour)
	_, ok := s.Get(key(1), time.Hour)
	require.True(t, ok)
	s.Claim(key(4), "a", time.Hour) // 2 was used longest ago
	_, ok = s.Get(key(2), time.Hour)
	require.False(t, ok)
	require.Equal(t, 3, s.Len())
	s.Release(key(1), "b")
	_, ok = s.Get(key(1), time.Hour)
	require.True(t, ok, "another writer's pin stays")
	s.Release(key(1), "a")
	require.Equal(t, 2, s.Len())

	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 300 {
				w := s.Claim(key(i%5), fmt.Sprint(g), time.Hour)
				s.Get(key(i%5), time.Hour)
				s.Release(key(i%5), w)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, s.Len(), 3)
}

func TestAffinityAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, err := NewAffinity(AffinityOptions{})
	require.NoError(t, err)
	o := PrefixLoad()
	o.Filters = []Filter{a}
	p := mustNew(t, o)
	cs := []Candidate{worker(0, 1, 0), worker(1, 0, 0)}
	req, d := &Request{Pins: Pins{Session: "s", APIKey: "k", Prompt: "p"}}, Decision{}
	require.NoError(t, p.Decide(req, cs, &d))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = p.Decide(req, cs, &d) }))
}

package jsonevent

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
)

// plain turns what vmihailenco/msgpack decodes into what encoding/json would.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for k, x := range v {
			m[string([]rune(k))] = plain(x)
		}
		return m
	case []any:
		l := []any{}
		for _, x := range v {
			l = append(l, plain(x))
		}
		return l
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
		return json.Number(fmt.Sprint(v))
	case time.Time: // an extension
		return nil
	case float32:
		return plain(float64(v))
	case nil, bool, string:
		return v
	}
	return json.Number(fmt.Sprint(v))
}

func random(r *rand.Rand, depth int) any {
	switch n := r.IntN(12); {
	case n < 2 && depth < 3:
		m := map[string]any{}
		for range r.IntN(20 >> (2 * depth)) {
			m[strings.Repeat("k\"\n", r.IntN(8))+fmt.Sprint(r.IntN(100))] = random(r, depth+1)
		}
		return m
	case n < 4 && depth < 3:
		l := []any{}
		for range r.IntN(20 >> (2 * depth)) {
			l = append(l, random(r, depth+1))
		}
		return l
	case n == 4:
		return strings.Repeat("é\x01", r.IntN(30))
	case n == 5:
		return r.Uint64() >> r.IntN(64)
	case n == 6:
		return -(r.Int64() >> r.IntN(63))
	case n == 7:
		return math.Float64frombits(r.Uint64())
	case n == 8:
		return []byte(strings.Repeat("b", r.IntN(1+30*r.IntN(20))))
	case n == 9:
		return r.IntN(2) == 0
	case n == 10:
		return float32(r.NormFloat64())
	}
	return nil
}

func compare(t testing.TB, payload []byte) {
	t.Helper()
	got, err := FromMsgpack(nil, payload, 1<<30)
	if err != nil { // the library may allocate what a header only claims
		require.ErrorIs(t, err, ErrMsgpack)
		return
	}
	var tree any
	want := msgpack.NewDecoder(strings.NewReader(string(payload))).Decode(&tree)
	require.True(t, json.Valid(got), "%x: %s", payload, got)
	require.LessOrEqual(t, len(got), 8*len(payload))
	if want != nil { // keys that are no texts, extensions that are not registered
		return
	}
	dec := json.NewDecoder(strings.NewReader(string(got)))
	dec.UseNumber()
	var back any
	require.NoError(t, dec.Decode(&back))
	a, _ := json.Marshal(plain(tree))
	b, _ := json.Marshal(back)
	require.JSONEq(t, string(a), string(b), "%x", payload)
}

func TestFromMsgpack(t *testing.T) {
	for seed := range uint64(2000) {
		payload, err := msgpack.Marshal(random(rand.New(rand.NewPCG(seed, 1)), 0))
		require.NoError(t, err)
		_, err = FromMsgpack(nil, payload, 1<<30)
		require.NoError(t, err)
		compare(t, payload)
		if len(payload) > 1 {
			_, err = FromMsgpack([]byte("x"), payload[:len(payload)-1], 1<<30)
			require.ErrorIs(t, err, ErrMsgpack)
		}
		_, err = FromMsgpack(nil, append(payload, 0), 1<<30)
		require.ErrorIs(t, err, ErrMsgpack)
	}
	_, err := FromMsgpack(nil, []byte("\x93\x01\x02\x03"), 3)
	require.ErrorIs(t, err, ErrMsgpack)
	for text, payload := range map[string]string{
		`{"1":2,"null":3}`: "\x82\x01\x02\xc0\x03",
		`[null,null]`:      "\x92\xd4\x01\x02\xc7\x03\x05abc",
		`"/w=="`:           "\xc4\x01\xff",
		"\"\uFFFD\"":       "\xa1\xff",
	} {
		got, err := FromMsgpack(nil, []byte(payload), 1<<30)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	for _, payload := range []string{"", "\xc1", "\x81\x90\x04", "\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff\x00", "\xc6\xff\xff\xff\xff", strings.Repeat("\x91", 100) + "\x00"} {
		_, err := FromMsgpack(nil, []byte(payload), 1<<30)
		require.ErrorIs(t, err, ErrMsgpack, "%x", payload)
	}
}

// FuzzFromMsgpack: any bytes give valid JSON that says what they say, or an error.
func FuzzFromMsgpack(f *testing.F) {
	for seed := range uint64(10) {
		payload, err := msgpack.Marshal(random(rand.New(rand.NewPCG(seed, 1)), 0))
		require.NoError(f, err)
		f.Add(payload)
	}
	f.Add([]byte("\x83\x01\x02\xc0\x03\x90\x04"))
	f.Fuzz(func(t *testing.T, payload []byte) { compare(t, payload) })
}

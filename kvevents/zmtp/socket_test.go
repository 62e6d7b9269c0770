package zmtp

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 10 s for %s", what)
		}
	}
}

func TestPubSub(t *testing.T) {
	for _, ep := range []string{"tcp://127.0.0.1:0", "tcp://[::1]:*", "tcp://*:0", "ipc://" + t.TempDir() + "/s"} {
		ctx := testContext(t)
		pub, err := NewPub(Options{})
		require.NoError(t, err)
		bound, err := pub.Bind(ep)
		require.NoError(t, err)
		t.Log(bound)
		sub, err := NewSub(Options{})
		require.NoError(t, err)
		require.NoError(t, sub.Subscribe("kv"))
		require.NoError(t, sub.Dial(bound))
		eventually(t, "subscription", func() bool { return pub.Subscriptions() == 1 })
		require.NoError(t, pub.Send([]byte("other"), []byte("no")))
		require.NoError(t, pub.Send([]byte("kv@1"), make([]byte, 300), nil))
		var m Message
		require.NoError(t, sub.Recv(ctx, &m))
		require.Equal(t, [][]byte{[]byte("kv@1"), make([]byte, 300), {}}, m.Frames)
		require.NoError(t, sub.Close())
		require.NoError(t, pub.Close())
	}
}

func TestDealerRouter(t *testing.T) {
	ctx := testContext(t)
	router, err := NewRouter(Options{})
	require.NoError(t, err)
	bound, err := router.Bind("tcp://127.0.0.1:0")
	require.NoError(t, err)
	dealer, err := NewDealer(Options{Identity: "me"})
	require.NoError(t, err)
	require.NoError(t, dealer.Dial(bound))
	require.NoError(t, dealer.Send(ctx, nil, []byte("ask")))
	var m Message
	require.NoError(t, router.Recv(ctx, &m))
	require.Equal(t, [][]byte{[]byte("me"), {}, []byte("ask")}, m.Frames)
	require.NoError(t, router.Send(m.Frames[0], nil, []byte("answer")))
	require.NoError(t, dealer.Recv(ctx, &m))
	require.Equal(t, [][]byte{{}, []byte("answer")}, m.Frames)
	require.Equal(t, ErrUnroutable, router.Send([]byte("you"), nil))
	require.NoError(t, dealer.Close())
	require.NoError(t, router.Close())
}

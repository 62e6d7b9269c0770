package zmtp

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseEndpoint(t *testing.T) {
	for _, c := range []struct {
		text, network, dial, bind string // "" where refused
	}{
		{"tcp://127.0.0.1:5557", "tcp4", "127.0.0.1:5557", "127.0.0.1:5557"},
		{"tcp://engine-0.svc:5557", "tcp", "engine-0.svc:5557", "engine-0.svc:5557"},
		{"tcp://[::1]:5557", "tcp", "[::1]:5557", "[::1]:5557"},
		{"tcp://::1:5557", "tcp", "[::1]:5557", "[::1]:5557"},
		{"tcp://[fe80::1%eth0]:5557", "tcp", "[fe80::1%eth0]:5557", "[fe80::1%eth0]:5557"},
		{"tcp://*:5557", "tcp", "", ":5557"},
		{"tcp://*:0", "tcp", "", ":0"},
		{"tcp://*:*", "tcp", "", ":0"},
		{"tcp://[::]:5557", "tcp", "[::]:5557", "[::]:5557"},
		{"tcp://:::5557", "tcp", "[::]:5557", "[::]:5557"},
		{"tcp://0.0.0.0:05557", "tcp4", "0.0.0.0:5557", "0.0.0.0:5557"},
		{"ipc:///run/kv.sock", "unix", "/run/kv.sock", "/run/kv.sock"},
		{"ipc://kv.sock", "unix", "kv.sock", "kv.sock"},
		{"ipc://@kv", "unix", "@kv", "@kv"},
		{text: ""},
		{text: "127.0.0.1:5557"},
		{text: "http://127.0.0.1:5557"},
		{text: "inproc://kv"},
		{text: "tcp://127.0.0.1"},
		{text: "tcp://127.0.0.1:"},
		{text: "tcp://127.0.0.1:65536"},
		{text: "tcp://127.0.0.1:-1"},
		{text: "tcp://127.0.0.1:+1"},
		{text: "tcp://127.0.0.1:http"},
		{text: "tcp://:5557"},
		{text: "tcp://[]:5557"},
		{text: "tcp://[127.0.0.1:5557"},
		{text: "tcp://[host]:5557"},
		{text: "tcp://a:b:5557"},
		{text: "tcp://host/path:5557"},
		{text: "tcp://10.0.0.2;10.0.0.1:5557"},
		{text: "ipc://"},
		{text: "ipc://@"},
		{text: "ipc://*"},
		{text: "ipc:///a\x00b"},
		{text: "ipc:///" + strings.Repeat("x", maxIPCPath)},
	} {
		for _, bind := range []bool{false, true} {
			want := c.dial
			if bind {
				want = c.bind
			}
			ep, err := parseEndpoint(c.text, bind)
			require.Equal(t, err, CheckEndpoint(c.text, bind))
			if want == "" {
				var bad *EndpointError
				require.ErrorAs(t, err, &bad, "%q bind=%v", c.text, bind)
				require.Equal(t, c.text, bad.Endpoint)
				require.NotEmpty(t, bad.Reason)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, c.network, ep.network, "%q", c.text)
			require.Equal(t, want, ep.address, "%q", c.text)
		}
	}
	_, err := parseEndpoint("tcp://127.0.0.1:0", false)
	require.ErrorContains(t, err, "1 to 65535")
}

func TestBindInterface(t *testing.T) {
	ifaces, err := net.Interfaces()
	require.NoError(t, err)
	for _, i := range ifaces {
		if i.Flags&net.FlagLoopback == 0 {
			continue
		}
		pub := open(t, NewPub, Options{})
		bound, err := pub.Bind("tcp://" + i.Name + ":0")
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(bound, "tcp://127.") || strings.HasPrefix(bound, "tcp://[::1]"), bound)
		return
	}
	t.Skip("no loopback interface on this machine")
}

func FuzzEndpoint(f *testing.F) {
	for _, s := range []string{"tcp://*:5557", "tcp://[::1]:5557", "tcp://*:0", "ipc:///path", "ipc://@x", "tcp://a;b:1", "tcp://:::*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, bind := range []bool{false, true} {
			ep, err := parseEndpoint(text, bind)
			if err != nil {
				if _, ok := err.(*EndpointError); !ok {
					t.Fatalf("%q: %T", text, err)
				}
				continue
			}
			if ep.network == "unix" {
				continue
			}
			if _, _, err := net.SplitHostPort(ep.address); err != nil {
				t.Fatalf("%q gives address %q: %v", text, ep.address, err)
			}
		}
	})
}

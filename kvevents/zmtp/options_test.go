package zmtp

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOptions(t *testing.T) {
	o, err := Options{}.WithDefaults()
	require.NoError(t, err)
	require.Equal(t, DefaultReceiveMessages, o.ReceiveMessages)
	require.EqualValues(t, DefaultMaxFrameBytes, o.MaxFrameBytes)
	require.Equal(t, DefaultHeartbeatInterval, o.HeartbeatInterval)
	require.Equal(t, DefaultReconnectMax, o.ReconnectMax)
	again, err := o.WithDefaults()
	require.NoError(t, err)
	require.Equal(t, o.MaxParts, again.MaxParts)

	o, err = Options{HeartbeatTimeout: time.Second, ReconnectMin: time.Minute}.WithDefaults()
	require.NoError(t, err)
	require.Equal(t, time.Second/2, o.HeartbeatInterval)
	require.Equal(t, time.Minute, o.ReconnectMax)

	for field, o := range map[string]Options{
		"Identity":         {Identity: strings.Repeat("x", 256)},
		"ReceiveMessages":  {ReceiveMessages: -1},
		"ReceiveBytes":     {ReceiveBytes: -1},
		"SendMessages":     {SendMessages: -1},
		"MaxFrameBytes":    {MaxFrameBytes: -1},
		"MaxMessageBytes":  {MaxMessageBytes: -1},
		"MaxBuffered":      {MaxBuffered: -1},
		"MaxParts":         {MaxParts: -1},
		"MaxPeers":         {MaxPeers: -1},
		"DialTimeout":      {DialTimeout: -1},
		"HandshakeTimeout": {HandshakeTimeout: -1},
		"HeartbeatTimeout": {HeartbeatInterval: 2, HeartbeatTimeout: 1},
		"ReconnectMin":     {ReconnectMin: -1},
		"ReconnectMax":     {ReconnectMin: 2, ReconnectMax: 1},
		"Linger":           {Linger: -1},
	} {
		_, err := Native.NewSub(o)
		var bad *OptionError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, field, bad.Option)
		require.True(t, strings.HasPrefix(err.Error(), "zmtp: option "+field))
		d, err := Native.NewDealer(o)
		require.Error(t, err)
		require.True(t, d == nil, "no socket with an error")
		_, err = NewPub(o)
		require.Error(t, err)
		_, err = NewRouter(o)
		require.Error(t, err)
	}
	_, err = NewSub(Options{Identity: "\x00a"})
	require.ErrorContains(t, err, "zero byte")
}

func TestEventKindString(t *testing.T) {
	require.Equal(t, "connected", Connected.String())
	require.Equal(t, "dropped", Dropped.String())
	require.Equal(t, "invalid", EventKind(0).String())
	require.Equal(t, "invalid", EventKind(99).String())
}

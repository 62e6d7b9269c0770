//go:build cgo && !windows

package libzmq

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
	"github.com/pebbe/zmq4"
)

// Transport makes sockets of libzmq. The zero value makes them without security,
// in the default context of zmq4. It is not changed by use and is safe for
// concurrent use.
//
// Each socket takes three of the sockets that the context allows, 1023 unless
// zmq4.SetMaxSockets was called before the first was made.
type Transport struct {
	// Curve, when not nil, encrypts with CURVE and authenticates both sides.
	Curve *Curve

	// Plain, when not nil, sends a name and a password in clear text.
	Plain *Plain

	// Configure, when not nil, is called with every new socket before its first
	// use, for settings that have no name here. It must not keep the socket.
	Configure func(*zmq4.Socket) error
}

var _ zmtp.Transport = Transport{}

// Curve holds the keys of CURVE, in the 40 characters of Z85 that
// zmq4.NewCurveKeypair returns.
type Curve struct {
	// PublicKey and SecretKey are this side's own.
	PublicKey, SecretKey string

	// ServerKey is the public key of the peer, which must be a CURVE server.
	ServerKey string

	// Server makes this side the server, for a SUB that binds; ServerKey is not
	// used then. Who may connect is decided by a ZAP handler, such as
	// zmq4.AuthStart; without one, everybody who knows PublicKey.
	Server bool
}

// Plain is a name and a password, for a peer that is a PLAIN server.
type Plain struct {
	Username, Password string
}

// NewSub returns a SUB socket. It must be closed.
func (t Transport) NewSub(o zmtp.Options) (zmtp.SubSocket, error) {
	s, err := t.open(zmq4.SUB, o)
	if err != nil {
		return nil, err
	}
	return &sub{socket: s, topics: make(map[string]bool)}, nil
}

// NewDealer returns a DEALER socket. It must be closed.
func (t Transport) NewDealer(o zmtp.Options) (zmtp.DealerSocket, error) {
	s, err := t.open(zmq4.DEALER, o)
	if err != nil {
		return nil, err
	}
	return &dealer{socket: s}, nil
}

// configure applies what has a counterpart in libzmq.
func (t Transport) configure(z *zmq4.Socket, o zmtp.Options) error {
	var errs []error
	set := func(option string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("libzmq: %s: %w", option, err))
		}
	}
	set("Options.ReceiveMessages", z.SetRcvhwm(o.ReceiveMessages))
	set("Options.SendMessages", z.SetSndhwm(o.SendMessages))
	set("Options.MaxFrameBytes", z.SetMaxmsgsize(o.MaxFrameBytes))
	set("Options.DialTimeout", z.SetConnectTimeout(o.DialTimeout))
	set("Options.HandshakeTimeout", z.SetHandshakeIvl(o.HandshakeTimeout))
	set("Options.ReconnectMin", z.SetReconnectIvl(max(o.ReconnectMin, time.Millisecond)))
	set("Options.ReconnectMax", z.SetReconnectIvlMax(o.ReconnectMax))
	set("Options.Linger", z.SetLinger(o.Linger))
	// A message is queued for a connection, not for one that may come.
	set("immediate", z.SetImmediate(true))
	if o.Identity != "" {
		set("Options.Identity", z.SetIdentity(o.Identity))
	}
	if o.HeartbeatInterval > 0 {
		// libzmq counts the timeout from the PING.
		set("Options.HeartbeatInterval", z.SetHeartbeatIvl(o.HeartbeatInterval))
		set("Options.HeartbeatTimeout", z.SetHeartbeatTimeout(max(o.HeartbeatTimeout-o.HeartbeatInterval, o.HeartbeatInterval)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := t.secure(z); err != nil {
		return err
	}
	if t.Configure != nil {
		return t.Configure(z)
	}
	return nil
}

func (t Transport) secure(z *zmq4.Socket) error {
	switch {
	case t.Curve != nil && t.Plain != nil:
		return fmt.Errorf("libzmq: Curve and Plain are both set; a socket has one security mechanism")
	case t.Plain != nil:
		if err := z.ClientAuthPlain(t.Plain.Username, t.Plain.Password); err != nil {
			return fmt.Errorf("libzmq: PLAIN: %w", err)
		}
	case t.Curve == nil:
	case !zmq4.HasCurve():
		return fmt.Errorf("libzmq: CURVE: the installed libzmq was built without it")
	case t.Curve.Server:
		if err := z.SetCurveServer(1); err != nil {
			return fmt.Errorf("libzmq: CURVE server: %w", err)
		}
		if err := z.SetCurveSecretkey(t.Curve.SecretKey); err != nil {
			return fmt.Errorf("libzmq: CURVE secret key: %w", err)
		}
	default:
		// Not ClientAuthCurve, which does not say when the secret key is bad.
		if err := z.SetCurveServerkey(t.Curve.ServerKey); err != nil {
			return fmt.Errorf("libzmq: CURVE server key: %w", err)
		}
		if err := z.SetCurvePublickey(t.Curve.PublicKey); err != nil {
			return fmt.Errorf("libzmq: CURVE public key: %w", err)
		}
		if err := z.SetCurveSecretkey(t.Curve.SecretKey); err != nil {
			return fmt.Errorf("libzmq: CURVE secret key: %w", err)
		}
	}
	return nil
}

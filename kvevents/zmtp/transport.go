package zmtp

import "context"

// Transport makes the two sockets a subscriber needs. Native is this package;
// kvevents/libzmq has another on the C library. A Transport is safe for
// concurrent use.
type Transport interface {
	// NewSub returns a socket for live events.
	NewSub(Options) (SubSocket, error)
	// NewDealer returns a socket for replay requests.
	NewDealer(Options) (DealerSocket, error)
}

// SubSocket is what a subscriber needs of a SUB socket. *Sub is one, and its
// methods say what each must do. All methods but Recv may be called by any
// goroutine at any time; Recv by one at a time.
type SubSocket interface {
	Dial(endpoint string) error
	Bind(endpoint string) (string, error)
	Subscribe(topic string) error
	Recv(ctx context.Context, m *Message) error
	Stats() Stats
	Close() error
}

// DealerSocket is what a subscriber needs of a DEALER socket. *Dealer is one,
// and its methods say what each must do. Concurrency is as for SubSocket.
type DealerSocket interface {
	Dial(endpoint string) error
	Send(ctx context.Context, frames ...[]byte) error
	Recv(ctx context.Context, m *Message) error
	Stats() Stats
	Close() error
}

// Native is the Transport of this package.
var Native Transport = native{}

type native struct{}

func (native) NewSub(o Options) (SubSocket, error) { return socketOrNil[SubSocket](NewSub(o)) }

func (native) NewDealer(o Options) (DealerSocket, error) {
	return socketOrNil[DealerSocket](NewDealer(o))
}

// socketOrNil keeps a nil pointer from becoming a non-nil interface.
func socketOrNil[I any, S interface{ *Sub | *Dealer }](s S, err error) (I, error) {
	var none I
	if err != nil {
		return none, err
	}
	return any(s).(I), nil
}

var (
	_ SubSocket    = (*Sub)(nil)
	_ DealerSocket = (*Dealer)(nil)
)

package zmtp

import "context"

const errSkeleton = constError("zmtp: not built yet")

type socket struct{}

type packet struct{}

// Dial keeps a connection to the endpoint until Close.
func (s *socket) Dial(endpoint string) error { return errSkeleton }

// Bind accepts connections at the endpoint and returns the endpoint with the
// address that was chosen.
func (s *socket) Bind(endpoint string) (string, error) { return "", errSkeleton }

// Stats returns the counts of the socket.
func (s *socket) Stats() Stats { return Stats{} }

// Close ends the socket and waits for its goroutines.
func (s *socket) Close() error { return errSkeleton }

// Dealer sends to and receives from routers.
type Dealer struct{ *socket }

// NewDealer returns a Dealer without connections.
func NewDealer(o Options) (*Dealer, error) { return nil, errSkeleton }

// Send sends one message to a connected peer, the next in turn; it waits while there is none.
func (s *Dealer) Send(ctx context.Context, frames ...[]byte) error { return errSkeleton }

// Recv is as Sub.Recv.
func (s *Dealer) Recv(ctx context.Context, m *Message) error { return errSkeleton }

// Pub sends to every peer that subscribed.
type Pub struct{ *socket }

// NewPub returns a Pub without connections.
func NewPub(o Options) (*Pub, error) { return nil, errSkeleton }

// Send never waits; a peer at its send high-water mark loses the message.
func (s *Pub) Send(frames ...[]byte) error { return errSkeleton }

// Router sends to peers by identity.
type Router struct{ *socket }

// NewRouter returns a Router without connections.
func NewRouter(o Options) (*Router, error) { return nil, errSkeleton }

// Send sends frames[1:] to the peer named frames[0]; it never waits.
func (s *Router) Send(frames ...[]byte) error { return errSkeleton }

// Recv is as Sub.Recv; the first frame is the identity of the sender.
func (s *Router) Recv(ctx context.Context, m *Message) error { return errSkeleton }

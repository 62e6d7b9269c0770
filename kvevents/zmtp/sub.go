package zmtp

import (
	"context"
)

// Sub receives what publishers send under the topics it subscribes to.
type Sub struct{ *socket }

// NewSub returns a Sub without connections or subscriptions.
func NewSub(o Options) (*Sub, error) { return nil, errSkeleton }

// Subscribe adds a topic: messages whose first frame begins with these bytes are
// received from every peer, present and future. The empty topic receives
// everything. Subscribing twice is the same as once.
func (s *Sub) Subscribe(topic string) error { return errSkeleton }

// Unsubscribe removes a topic; removing what is not there does nothing.
func (s *Sub) Unsubscribe(topic string) error { return errSkeleton }

// Recv waits for the next message and puts it into m, whose former content is
// taken back. It returns ErrClosed after Close, the error of ctx when ctx ends,
// and a *LossError where messages were dropped.
func (s *Sub) Recv(ctx context.Context, m *Message) error { return errSkeleton }

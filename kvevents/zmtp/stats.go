package zmtp

// Stats are counts since a socket was made; Peers and Waiting are as of now.
// Those a transport cannot know are zero.
type Stats struct {
	Peers             int    // connections whose handshake is complete
	Waiting           int    // messages waiting for Recv
	Connects          uint64 // handshakes completed
	Disconnects       uint64 // connections that ended after a handshake
	DialFailures      uint64 // dials that were not answered
	HandshakeFailures uint64 // connections that ended within the handshake
	Rejected          uint64 // connections refused because there were MaxPeers
	Received          uint64 // messages that came from peers, dropped ones included
	ReceivedBytes     uint64 // bytes of their frames
	ReceiveDropped    uint64 // of Received: dropped at the receive high-water mark
	Filtered          uint64 // of Received: dropped by a Sub that had no subscription for them
	Sent              uint64 // messages queued for a peer; a Pub counts each peer
	SendDropped       uint64 // messages dropped at the send high-water mark; a Pub counts each peer
}

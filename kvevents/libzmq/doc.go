// Package libzmq is a [zmtp.Transport] on libzmq, the C library of ZeroMQ, for
// those who need its security mechanisms CURVE and PLAIN, or who operate libzmq
// already. Without such a need use zmtp.Native, which is pure Go.
//
// It needs cgo and libzmq 4.2 or later with its headers; see the README. Without
// cgo, and on Windows, the package is empty.
//
// # Differences from the native transport
//
//   - Message.Peer is always zero: libzmq does not tell which connection a
//     message came by, so publishers that share a bound socket must be told apart
//     by their topics.
//   - A slow consumer loses messages at the publisher, unsaid, since libzmq stops
//     reading a connection whose queue is full. No *zmtp.LossError is returned;
//     gaps show in sequence numbers only.
//   - Options.ReceiveBytes, MaxMessageBytes, MaxBuffered, MaxParts and MaxPeers
//     have no counterpart and are not enforced: a peer that sends a message of endless
//     parts is held in memory. Use the native transport where peers are not
//     trusted, or CURVE, which keeps strangers out.
//   - Options.DialContext is refused.
//   - Host names are resolved to IPv4 addresses only.
package libzmq

package zmtp

import (
	"bufio"
	"encoding/binary"
	"io"
)

// Flags of a frame. The other bits are zero.
const (
	flagMore    = 1 << 0 // another frame of the message follows
	flagLong    = 1 << 1 // the size has 8 bytes, not 1
	flagCommand = 1 << 2
	flagsKnown  = flagMore | flagLong | flagCommand
)

// maxFrameHeader is the size of the longest frame header.
const maxFrameHeader = 9

// appendHeader appends the header of a frame with a body of that size.
func appendHeader(dst []byte, flags byte, size int) []byte {
	if size <= 255 {
		return append(dst, flags, byte(size))
	}
	dst = append(dst, flags|flagLong)
	return binary.BigEndian.AppendUint64(dst, uint64(size))
}

// readHeader reads the header of a frame. The end of the stream before its first
// byte is io.EOF, later io.ErrUnexpectedEOF.
func readHeader(r *bufio.Reader) (flags byte, size uint64, err error) {
	flags, err = r.ReadByte()
	if err != nil {
		return 0, 0, err
	}
	if flags&^flagsKnown != 0 || flags&flagCommand != 0 && flags&flagMore != 0 {
		return 0, 0, protocolErrorf("peer sent a frame with flags %#02x", flags)
	}
	if flags&flagLong == 0 {
		b, err := r.ReadByte()
		return flags, uint64(b), unexpectedEOF(err)
	}
	b, err := r.Peek(8)
	if err != nil {
		return 0, 0, unexpectedEOF(err)
	}
	size = binary.BigEndian.Uint64(b)
	_, err = r.Discard(8)
	return flags, size, err
}

func unexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readChunk is how many bytes a buffer grows by, at least, before they arrived.
const readChunk = 64 << 10

// readBody appends size bytes to the packet. The buffer grows with what has
// arrived, so that a large size that is only announced costs one chunk. Beyond
// one, reserve is asked first for what the buffer will hold; nil allows all.
func readBody(r *bufio.Reader, p *packet, size uint64, reserve func(int) error) error {
	for size > 0 {
		n := int(min(size, uint64(max(readChunk, len(p.buf)))))
		if need := len(p.buf) + n; need > readChunk && need > cap(p.buf) && reserve != nil {
			if err := reserve(max(need, 2*cap(p.buf))); err != nil {
				return err
			}
		}
		p.grow(n)
		at := len(p.buf)
		p.buf = p.buf[:at+n]
		if _, err := io.ReadFull(r, p.buf[at:]); err != nil {
			p.buf = p.buf[:at]
			return unexpectedEOF(err)
		}
		size -= uint64(n)
	}
	return nil
}

// limits bounds one message of a peer.
type limits struct {
	frame, message, parts uint64
	reserve               func(int) error // see readBody
}

// readMessageFrame reads the body of a frame of a message whose header has been
// read, after checking what it announces.
func (l *limits) readMessageFrame(r *bufio.Reader, p *packet, size uint64) error {
	if size > l.frame {
		return &LimitError{What: "frame bytes", Got: size, Limit: l.frame}
	}
	if total := uint64(len(p.buf)) + size; total > l.message {
		return &LimitError{What: "message bytes", Got: total, Limit: l.message}
	}
	if parts := uint64(len(p.ends)) + 1; parts > l.parts {
		return &LimitError{What: "message parts", Got: parts, Limit: l.parts}
	}
	if err := readBody(r, p, size, l.reserve); err != nil {
		return err
	}
	p.ends = append(p.ends, len(p.buf))
	return nil
}

// maxCommandBytes bounds a command; the longest is a subscription.
const maxCommandBytes = 64 << 10

// readCommand reads the body of a command into dst, which it replaces.
func readCommand(r *bufio.Reader, dst []byte, size uint64) ([]byte, error) {
	if size > maxCommandBytes {
		return dst, &LimitError{What: "command bytes", Got: size, Limit: maxCommandBytes}
	}
	if uint64(cap(dst)) < size {
		dst = make([]byte, size)
	}
	dst = dst[:size]
	_, err := io.ReadFull(r, dst)
	return dst, unexpectedEOF(err)
}

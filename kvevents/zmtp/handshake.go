package zmtp

import (
	"bufio"
	"errors"
	"io"
	"os"
)

// handshake exchanges greetings and READY commands, within the deadline that is
// set on the connection. Everything read is bounded before it is read.
func (c *conn) handshake() error {
	err := c.exchange()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return protocolErrorf("peer did not complete the handshake within %v", c.s.opt.HandshakeTimeout)
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return protocolErrorf("peer closed the connection within the handshake")
	}
	return err
}

func (c *conn) exchange() error {
	c.out.control(appendGreeting(nil))

	var g [greetingSize]byte
	// In steps, since older peers stop after the signature or the version.
	if _, err := io.ReadFull(c.nc, g[:signatureSize]); err != nil {
		return err
	}
	if err := checkSignature(g[:signatureSize]); err != nil {
		return err
	}
	if _, err := io.ReadFull(c.nc, g[signatureSize:signatureSize+1]); err != nil {
		return err
	}
	if err := checkVersion(g[signatureSize]); err != nil {
		return err
	}
	if _, err := io.ReadFull(c.nc, g[signatureSize+1:]); err != nil {
		return err
	}
	minor, err := parseGreeting(&g)
	if err != nil {
		return err
	}
	c.minor = minor

	c.br = bufio.NewReaderSize(&c.beat, readBuffer)
	c.out.control(appendReady(nil, ready{socketType: c.s.role.socketType(), identity: c.s.opt.Identity}))
	theirs, err := c.readReady()
	if err != nil {
		return err
	}
	if ours := c.s.role.socketType(); !compatible(ours, theirs.socketType) {
		return protocolErrorf("peer is a %q socket, which a %s does not speak to", theirs.socketType, ours)
	}
	c.identity = theirs.identity
	return nil
}

// maxReadyBytes bounds a READY or ERROR command of the handshake.
const maxReadyBytes = 4 << 10

func (c *conn) readReady() (ready, error) {
	flags, size, err := readHeader(c.br)
	if err != nil {
		return ready{}, err
	}
	if flags&flagCommand == 0 {
		return ready{}, protocolErrorf("peer sent a message within the handshake")
	}
	if size > maxReadyBytes {
		return ready{}, protocolErrorf("peer sent a handshake command of %d bytes; at most %d are accepted", size, maxReadyBytes)
	}
	body, err := readCommand(c.br, nil, size)
	if err != nil {
		return ready{}, err
	}
	name, data, err := parseCommand(body)
	switch {
	case err != nil:
		return ready{}, err
	case string(name) == cmdReady:
		return parseReady(data)
	case string(name) == cmdError:
		return ready{}, parseError(data)
	}
	return ready{}, protocolErrorf("peer sent command %q instead of READY", name)
}

package zmtp

// Memory of all connections of a socket together. It is bounded so that many
// peers that each stay within their own limits cannot add up without end; and
// shared so that those who use much do not keep others from using little.

// fits says whether a connection that would then hold that many bytes may grow
// by so many: when the socket as a whole has room, or the connection stays
// within an equal share. So the socket holds at most twice Options.MaxBuffered.
// With s.mu held.
func (s *socket) fits(held, growth int64) bool {
	return s.buffered+growth <= s.opt.MaxBuffered || held <= s.share()
}

// share is the equal share of a connection. With s.mu held.
func (s *socket) share() int64 {
	return s.opt.MaxBuffered / int64(max(1, len(s.conns)+s.orphans))
}

// reserve accounts for the memory of a message being assembled, which is now so
// many bytes.
func (s *socket) reserve(c *conn, bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	growth := bytes - c.assembling
	if held := c.in.bytes + bytes; !s.fits(held, growth) {
		return &LimitError{What: "buffered bytes", Got: uint64(held), Limit: uint64(s.share())}
	}
	c.assembling = bytes
	s.buffered += growth
	return nil
}

// unreserve forgets the message being assembled. With s.mu held.
func (s *socket) unreserve(c *conn) {
	s.buffered -= c.assembling
	c.assembling = 0
}

package jsonevent

import (
	"errors"

	"github.com/kvatlas/kvatlas/internal/jsonscan"
)

// ErrTooLong is returned for a message over the limit of bytes.
var ErrTooLong = errors.New("more bytes than the limit allows")

// Open begins to read a message in JSON or msgpack of at most so many bytes. Msgpack
// is written as JSON into buf, which is returned for the next message.
func Open(message, buf []byte, most int) (*jsonscan.Scanner, []byte, error) {
	if len(message) > most {
		return nil, buf, ErrTooLong
	}
	if IsMsgpack(message) {
		var err error
		if buf, err = FromMsgpack(buf[:0], message, 2*most); err != nil {
			return nil, buf, err
		}
		message = buf
	}
	return jsonscan.New(string(message)), buf, nil
}

// Each reads the next value, or the values of a list, at most so many, with a
// function; and then the end of the message.
func Each(s *jsonscan.Scanner, most int, read func() error) error {
	n := 0
	one := func() error {
		if n++; n > most {
			return s.Fail("more events than the limit allows")
		}
		return read()
	}
	var err error
	if s.Peek() == '[' {
		err = s.Array(one)
	} else {
		err = one()
	}
	if err == nil && !s.End() {
		err = s.Fail("text after the events")
	}
	return err
}

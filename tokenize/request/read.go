package request

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// DefaultMaxBytes is the default of [Options.MaxBytes].
const DefaultMaxBytes = 64 << 20

// Options configure [Parse] and [Read]. The zero value is ready.
type Options struct {
	// MaxBytes is how large a body may be, by default [DefaultMaxBytes].
	MaxBytes int
	// CacheSalt, when it is not nil, is the request's salt whatever the body
	// says: that of a gateway's header, for example. "" is none.
	CacheSalt *string
	// Adapter tells of a name in the field model whether it is a LoRA
	// adapter, and of which base model. Nil means that no name is.
	Adapter func(name string) (base string, ok bool)
	// Counters, when not nil, count bodies that were refused here.
	Counters *Counters
}

func (o *Options) maxBytes() int {
	if o.MaxBytes > 0 {
		return o.MaxBytes
	}
	return DefaultMaxBytes
}

// Read reads the body of an HTTP request once and parses it. r.Body then
// gives the same bytes again, for forwarding, also with an error. A body
// beyond the limit is not kept whole: r.Body then streams the rest.
func Read(r *http.Request, o Options) (*Request, error) {
	most := o.maxBytes()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(most)+1))
	again := io.Reader(bytes.NewReader(body))
	if len(body) > most || err != nil {
		again = io.MultiReader(again, r.Body)
	}
	r.Body = &replay{again, r.Body}
	if err != nil {
		return nil, refused(&o, r.URL.Path, ReasonBody, err)
	}
	return Parse(r.URL.Path, r.Header, body, o)
}

type replay struct {
	io.Reader
	io.Closer
}

func refused(o *Options, path string, reason Reason, err error) error {
	e, _ := EndpointOf(path)
	why := &CannotError{Endpoint: e, Reason: reason, Err: err}
	o.Counters.count(e, false, why)
	return why
}

var errTooLarge = errors.New("the body is larger than the limit")

package trtllm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvatlas/kvatlas/internal/jsonscan"
	"github.com/kvatlas/kvatlas/kvevents"
)

// PollerOptions configure a [Poller]. URL, Worker, Handler and Decoder.BlockSize
// are required.
type PollerOptions struct {
	// URL is the server's, such as "http://10.0.0.7:8000"; events are fetched from
	// /kv_cache_events below it.
	URL string
	// Worker names the engine in what Handler is told; its attention data-parallel
	// ranks are the ranks of its sources.
	Worker string
	// Handler receives the events, for example Atlas.Handler.
	Handler kvevents.Handler
	// Decoder says how events are read.
	Decoder Options
	// Client makes the requests; nil means one of its own.
	Client *http.Client
	// Least is the pause after an answer with events, default 10 ms. After one
	// without events, or an error, it doubles up to Most, default 1 s.
	Least, Most time.Duration
	// Timeout bounds one request; default 30 s. Servers before 1.3 hold a request
	// for 2 s while there are no events.
	Timeout time.Duration
}

// Poller fetches the events of one engine over HTTP and feeds a handler: each rank's
// events in order, each once, and every hole among them as a kvevents.Loss.
//
// The engine hands each event out once, to whoever asks first. So an engine must
// have one poller only, which makes one request at a time. An answer that is lost on
// its way takes its events with it; the next event's number tells. Until then
// [Status.Unsure] is set, and what is known of the engine may be too much.
//
// Make it with [NewPoller]; run [Poller.Run], or call [Poller.Poll] yourself. Both
// and Status may be called by any goroutine.
type Poller struct {
	o   PollerOptions
	url string

	polling sync.Mutex // one request at a time
	dec     *Decoder
	batch   kvevents.Batch
	body    bytes.Buffer

	mu     sync.Mutex // the fields below
	ranks  map[int32]*kvevents.Sequence
	status Status
}

// Status is what a [Poller] knows of itself.
type Status struct {
	// Polls are the requests made, Failures those that failed.
	Polls, Failures uint64
	// Events were read, and among them Malformed and UnknownTypes.
	Events, Malformed, UnknownTypes uint64
	UnknownFields                   uint64
	// Losses are holes among the numbers and events that could not be read,
	// Lost the events they span. Restarts are those of the engine.
	Losses, Lost, Restarts uint64
	// Ranks that sent events.
	Ranks []int32
	// Unsure: a request failed after it may have reached the engine, and no event
	// came since. Last is the error of the last request, nil if it went well.
	Unsure bool
	Last   error
	// Decoder has what the decoder left out.
	Decoder Stats
}

// NewPoller makes a poller. The error names the option at fault.
func NewPoller(o PollerOptions) (*Poller, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("trtllm: URL is %q, want one such as http://host:8000", o.URL)
	}
	if o.Worker == "" || o.Handler == nil {
		return nil, errors.New("trtllm: a poller needs a Worker and a Handler")
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{{"Least", &o.Least, 10 * time.Millisecond}, {"Most", &o.Most, time.Second}, {"Timeout", &o.Timeout, 30 * time.Second}} {
		if *d.value < 0 {
			return nil, fmt.Errorf("trtllm: %s is %v, want 0 or more", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	o.Most = max(o.Most, o.Least)
	dec, err := NewDecoder(o.Decoder)
	if err != nil {
		return nil, err
	}
	if o.Client == nil {
		o.Client = &http.Client{}
	}
	return &Poller{
		o: o, url: strings.TrimSuffix(u.String(), "/") + "/kv_cache_events", dec: dec, ranks: map[int32]*kvevents.Sequence{},
	}, nil
}

// Run polls until ctx ends, and returns its error. Errors of requests are in
// Status; the next request follows after a pause.
func (p *Poller) Run(ctx context.Context) error {
	pause := p.o.Least
	for {
		if n, err := p.Poll(ctx); n > 0 && err == nil {
			pause = p.o.Least
		} else {
			pause = min(2*pause, p.o.Most)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// StatusError is an answer that is not one of events.
type StatusError struct {
	Code int // HTTP status
	URL  string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("trtllm: %s answered %d %s; trtllm-serve answers there when kv_cache_config has an event_buffer_max_size",
		e.URL, e.Code, http.StatusText(e.Code))
}

// Poll makes one request and applies the events of the answer, whose number it
// returns. Of an answer that breaks off, the events before are applied, since
// nobody will get them again. The error is that of the request, a [*StatusError], or
// an [*EventError].
func (p *Poller) Poll(ctx context.Context) (events int, err error) {
	p.polling.Lock()
	defer p.polling.Unlock()
	reached, err := p.fetch(ctx)
	if reached {
		var broken error
		if events, broken = p.read(p.body.String()); err == nil {
			err = broken
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.Polls++
	p.status.Last = err
	if events > 0 {
		p.status.Unsure = false
	}
	if err != nil {
		p.status.Failures++
		p.status.Unsure = p.status.Unsure || reached
	}
	return events, err
}

// fetch reads an answer into p.body. reached says that the engine may have given
// events up for it.
func (p *Poller) fetch(ctx context.Context) (reached bool, err error) {
	p.body.Reset()
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, http.NoBody)
	if err != nil {
		return false, err
	}
	resp, err := p.o.Client.Do(req)
	if err != nil {
		return !refused(err), fmt.Errorf("trtllm: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode >= 500, &StatusError{resp.StatusCode, p.url}
	}
	most := int64(p.dec.lim.PayloadBytes)
	n, err := io.Copy(&p.body, io.LimitReader(resp.Body, most+1))
	if err == nil && n > most {
		err = fmt.Errorf("trtllm: answer of %s is over the limit of %d bytes", p.url, most)
	}
	return true, err
}

// read applies the events of an answer in their order.
func (p *Poller) read(answer string) (events int, err error) {
	s := jsonscan.New(answer)
	if s.End() {
		return 0, nil
	}
	err = s.Array(func() error {
		if events >= p.dec.lim.Events {
			return s.Fail("more events than the limit allows")
		}
		id, err := p.dec.decode(s, &p.batch)
		if err != nil {
			return err
		}
		events++
		p.apply(id, &p.batch)
		return nil
	})
	if err == nil && !s.End() {
		err = s.Fail("text after the list of events")
	}
	if err != nil {
		err = asEventError(s, err)
	}
	return events, err
}

// apply passes one event on, after what its number says.
func (p *Poller) apply(id uint64, b *kvevents.Batch) {
	src := kvevents.Source{Worker: p.o.Worker, Rank: b.Rank}
	p.mu.Lock()
	seq := p.ranks[b.Rank]
	if seq == nil {
		seq = &kvevents.Sequence{}
		p.ranks[b.Rank] = seq
	}
	step := seq.Take(id, 0, 0)
	st := &p.status
	st.Events++
	st.Malformed += uint64(len(b.Malformed))
	st.UnknownTypes += uint64(b.UnknownTypes)
	st.UnknownFields += uint64(b.UnknownFields)
	if step.Restart {
		st.Restarts++
	}
	if step.Cause != 0 {
		st.Losses++
		st.Lost += step.To + 1 - step.From
	}
	lost := kvevents.Step{From: id, To: id, Cause: kvevents.LossEvent}
	for _, m := range b.Malformed {
		lost.Removals = lost.Removals || m.Kind != kvevents.BlockStored
		st.Losses++
		st.Lost++
	}
	st.Decoder = p.dec.Stats()
	p.mu.Unlock()
	step.Tell(p.o.Handler, src)
	b.Timestamp = float64(time.Now().UnixNano()) / 1e9
	p.o.Handler.Apply(src, id, b)
	if len(b.Malformed) > 0 {
		lost.Tell(p.o.Handler, src)
	}
}

// Status returns the counts and the state as of now.
func (p *Poller) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := p.status
	st.Ranks = slices.Sorted(maps.Keys(p.ranks))
	return st
}

// refused tells that a request never reached the engine.
func refused(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

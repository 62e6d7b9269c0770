package main

import (
	"context"
	"time"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/kvevents"
)

// replica is a recorded engine that lives through its session again and again.
type replica struct {
	f      *fleet
	name   string
	ops    []op
	engine publisher
	replay bool // it has a replay endpoint

	choice   kvatlas.Choice
	underWay []request
}

// live plays the session until the context ends, or laps times if that is more
// than 0. After each lap the engine is restarted.
func (r *replica) live(ctx context.Context, laps int) error {
	for lap := 0; laps == 0 || lap < laps; lap++ {
		if lap > 0 {
			r.engine.close()
			if err := r.engine.open(r.replay); err != nil {
				return err
			}
		}
		err := r.lap(ctx)
		r.finish(0)
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

func (r *replica) lap(ctx context.Context) error {
	for r.engine.pub.Subscriptions() == 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	published := uint64(0)
	for i := range r.ops {
		o := &r.ops[i]
		switch o.Op {
		case "event":
			r.engine.publish(o.Topic, message{o.Seq, o.Payload}, r.f.o.trouble && i%31 == 30)
			published = o.Seq + 1
		case "reset_prefix_cache":
			// The engine announces its clear only with the next request.
			if err := r.f.atlas.Clear(r.name); err != nil {
				return err
			}
		case "request":
			r.wait(ctx, published)
			if err := r.request(o); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(r.f.o.pace):
			}
		}
	}
	return nil
}

// wait waits until the subscriber knows what was published. In trouble it may
// never know, or only with the next message.
func (r *replica) wait(ctx context.Context, published uint64) {
	patience := 10 * time.Second
	if r.f.o.trouble {
		patience = r.f.o.pace / 2
	}
	for start := time.Now(); time.Since(start) < patience && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		for _, st := range r.f.sub.AppendStatus(nil) {
			if st.Worker == r.name && st.Next >= published && st.State != kvevents.Syncing {
				return
			}
		}
	}
}

// request routes a recorded prompt to the replica that got it, and compares what was
// predicted with what that one reported. A few requests are under way at a time.
func (r *replica) request(o *op) error {
	req := &kvatlas.Request{Prompt: o.prompt(), Workers: []string{r.name}}
	if err := r.f.atlas.Route(req, &r.choice); err != nil {
		return err
	}
	trip, err := r.f.atlas.Begin(req, &r.choice)
	if err != nil {
		return err
	}
	trip.FirstToken()
	r.underWay = append(r.underWay, request{trip, o.cached()})
	r.finish(3)
	return nil
}

// finish ends the oldest requests but so many.
func (r *replica) finish(but int) {
	for len(r.underWay) > but {
		r.underWay[0].trip.Finish(r.underWay[0].cached)
		r.underWay = r.underWay[1:]
	}
}

type request struct {
	trip   kvatlas.Trip
	cached int
}

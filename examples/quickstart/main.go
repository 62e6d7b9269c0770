// Command quickstart replays recorded sessions of three real vLLM servers, of
// three releases and three hash eras, as one fleet, and routes the prompts that
// were recorded with them:
//
//	go run ./examples/quickstart [-show N]
//
// Each prompt is routed at the moment at which its server received it, knowing
// only the events published until then. Beside the prediction for that server
// stands what the server reported afterwards (cached_tokens): the last lines
// count how often the two were equal.
//
// It needs nothing but a checkout: the raw frames are in testdata.
package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/internal/conform"
	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/internal/recording"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/scoring"
)

// servers are the recordings that play the fleet.
var servers = []struct{ worker, file string }{
	{"a", "vllm/server/0.32.0/truth-main.jsonl"},
	{"b", "vllm/server/0.29.0/truth-main.jsonl"},
	{"c", "vllm/server/0.20.2/truth-evict.jsonl"}, // seed unset: its root is random
}

func main() {
	show := flag.Int("show", 8, "how many routed prompts to print in full")
	flag.Parse()
	out := bufio.NewWriter(os.Stdout)
	err := run(out, *show)
	out.Flush()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// replica is one recorded server on its way through its session.
type replica struct {
	worker         string
	session        *recording.Session
	stream         *kvevents.Stream
	next           int
	requests       int
	exact, cached  int
	reportedTokens int
}

func run(out io.Writer, show int) error {
	options := scoring.PrefixLoad()
	options.Random = scoring.Seeded(1) // the same table on every run
	policy, err := scoring.New(options)
	if err != nil {
		return err
	}
	atlas, err := kvatlas.New(kvatlas.Options{Policy: policy})
	if err != nil {
		return err
	}
	d := demo{atlas: atlas, out: out}
	for _, s := range servers {
		if err := d.add(s.worker, s.file); err != nil {
			return err
		}
	}
	total := 0
	for _, r := range d.replicas {
		for i := range r.session.Ops {
			if r.session.Ops[i].Op == "request" {
				total++
			}
		}
	}
	d.every = max(total/max(show, 1), 1)
	d.quiet = show < 1
	fmt.Fprintln(out)
	for moved := true; moved; {
		moved = false
		for _, r := range d.replicas { // one request of each server in turn
			more, err := d.advance(r)
			if err != nil {
				return fmt.Errorf("worker %s: %w", r.worker, err)
			}
			moved = moved || more
		}
	}
	return d.summary()
}

// demo is the fleet, and the choices made for it.
type demo struct {
	atlas    *kvatlas.Atlas
	out      io.Writer
	replicas []*replica
	choice   kvatlas.Choice
	trips    []kvatlas.Trip // the last choices stand in for requests in flight
	routed   int
	every    int
	quiet    bool
}

// inFlight is how many of the last choices count as still running.
const inFlight = 6

func (d *demo) add(name, file string) error {
	f, err := golden.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := recording.ReadSession(f)
	if err != nil {
		return err
	}
	w, err := conform.SessionWorker(s.Meta)
	if err != nil {
		return err
	}
	w.Name = name
	if err := d.atlas.AddWorker(w); err != nil {
		return err
	}
	mode, _ := d.atlas.Mode(name)
	fmt.Fprintf(d.out, "worker %s: %s, session %s, block size %d, matched by %s\n", name, s.Meta.Engine, s.Meta.Session, s.Meta.BlockSize, mode)
	sink, err := d.atlas.Sink(name)
	if err != nil {
		return err
	}
	stream, err := kvevents.NewStream(kvevents.StreamOptions{Worker: name}, sink)
	if err != nil {
		return err
	}
	d.replicas = append(d.replicas, &replica{worker: name, session: s, stream: stream})
	return nil
}

// advance plays a server's session up to and including its next request. It
// reports whether there was one.
func (d *demo) advance(r *replica) (bool, error) {
	for r.next < len(r.session.Ops) {
		op := &r.session.Ops[r.next]
		r.next++
		switch op.Op {
		case "event":
			if err := r.deliver(op); err != nil {
				return false, err
			}
		case "reset_prefix_cache":
			// The engine announces its clear only with the next request.
			if err := d.atlas.Clear(r.worker); err != nil {
				return false, err
			}
		case "request":
			return true, d.route(r, op.Request)
		}
	}
	return false, nil
}

// deliver gives the stream a message as the wire does: topic, sequence, payload.
func (r *replica) deliver(op *recording.SessionOp) error {
	seq := binary.BigEndian.AppendUint64(nil, uint64(op.Seq))
	m, err := kvevents.ParseMessage([][]byte{[]byte(op.Topic), seq, op.Payload})
	if err != nil {
		return err
	}
	r.stream.Message(time.Unix(0, 0), 1, m)
	return nil
}

// route lets the policy choose for a recorded prompt, and compares what was
// predicted for the server that really got it with what that one reported.
func (d *demo) route(r *replica, recorded *recording.ServerRequest) error {
	d.routed++
	shown := !d.quiet && d.routed%d.every == 0
	req := kvatlas.Request{Prompt: conform.SessionPrompt(recorded), Explain: shown}
	if err := d.atlas.Route(&req, &d.choice); err != nil {
		return err
	}
	trip, err := d.atlas.Begin(&req, &d.choice)
	if err != nil {
		return err
	}
	if d.trips = append(d.trips, trip); len(d.trips) > inFlight {
		d.trips[0].Finish(-1)
		d.trips = d.trips[1:]
	}
	for _, w := range d.choice.Match.Workers {
		if w.Name == r.worker {
			r.requests++
			r.reportedTokens += recorded.Cached()
			if w.Usable == recorded.Cached() {
				r.exact++
			}
			if recorded.Cached() > 0 {
				r.cached++
			}
		}
	}
	if shown {
		d.print(r, recorded)
	}
	return nil
}

func (d *demo) print(r *replica, recorded *recording.ServerRequest) {
	fmt.Fprintf(d.out, "prompt %d: %s, %d tokens, received by worker %s\n", d.routed, recorded.Kind, len(recorded.Tokens), r.worker)
	t := tabwriter.NewWriter(d.out, 2, 8, 2, ' ', 0)
	fmt.Fprintln(t, "  worker\tmedium\tblocks\ttokens\tscore\tin flight\tengine reported")
	for i, w := range d.choice.Match.Workers {
		medium, mark, reported := "GPU", " ", ""
		if w.Combined == 0 {
			medium = "-"
		}
		if w.Name == d.choice.Worker {
			mark = ">"
		}
		if w.Name == r.worker {
			reported = fmt.Sprintf("%d, predicted %d", recorded.Cached(), w.Usable)
		}
		fmt.Fprintf(t, "%s %s\t%s\t%d\t%d\t%.2f\t%.0f\t%s\n", mark, w.Name, medium, w.Combined, w.Usable, d.choice.Decision.Totals[i],
			d.choice.Candidates[i].Load.Requests.Value, reported)
	}
	t.Flush()
	fmt.Fprintf(d.out, "  chosen: %s\n\n", &d.choice.Decision)
}

func (d *demo) summary() error {
	requests, exact := 0, 0
	for _, r := range d.replicas {
		fmt.Fprintf(d.out, "worker %s: %d of %d predictions equal what the engine reported (%d requests with cached tokens, %d tokens in all)\n",
			r.worker, r.exact, r.requests, r.cached, r.reportedTokens)
		requests, exact = requests+r.requests, exact+r.exact
	}
	fmt.Fprintf(d.out, "%s\nexact: %d of %d\n", strings.Repeat("-", 12), exact, requests)
	if exact != requests {
		return fmt.Errorf("%d predictions differ from what the engines reported", requests-exact)
	}
	return nil
}

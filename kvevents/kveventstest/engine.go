package kveventstest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/zmtp"
	"github.com/zeebo/xxh3"
)

// Options configures an [Engine]. The zero value is vLLM of the newest known
// form with 1024 blocks of 16 tokens on ports that the system chooses, without
// replay.
type Options struct {
	// Engine and Release choose the wire form, see kvevents.FormFor; default
	// "vllm" and "0.33.0".
	Engine, Release string
	// Digests is the length of block hashes as byte strings; 0 means integers.
	Digests int
	// BlockSize is in tokens, default 16.
	BlockSize int
	// Blocks is the size of the GPU pool over all groups, default 1024;
	// CPUBlocks that of the offload tier, default none.
	Blocks, CPUBlocks int
	// Groups are the cache groups, default one of full attention.
	Groups []Group
	// Topic is the first frame of every message.
	Topic string
	// Rank is the data-parallel rank in every batch; negative leaves it out.
	Rank int
	// Endpoint is where the publisher binds, default "tcp://127.0.0.1:0".
	Endpoint string
	// Connect makes the publisher dial Endpoint instead, for subscribers that
	// bind.
	Connect bool
	// Replay opens a replay endpoint at ReplayEndpoint, default
	// "tcp://127.0.0.1:0", that keeps the last BufferSteps batches, default
	// 10,000.
	Replay         bool
	ReplayEndpoint string
	BufferSteps    int
	// SendMessages is the high-water mark of both sockets, default 100,000.
	SendMessages int
	// Hash gives the hash of a block from the hash before (0 and false for the
	// first block) and its tokens; default is a hash of this package's own. See
	// [HashAs] for those of an engine.
	Hash func(parent uint64, chained bool, tokens []uint32) uint64
	// Clock gives the timestamps; default time.Now.
	Clock func() time.Time
}

func (o Options) withDefaults() (Options, kvevents.Form, error) {
	set := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	text := func(v *string, def string) {
		if *v == "" {
			*v = def
		}
	}
	set(&o.BlockSize, 16)
	set(&o.Blocks, 1024)
	set(&o.BufferSteps, 10_000)
	set(&o.SendMessages, 100_000)
	text(&o.Engine, "vllm")
	text(&o.Release, "0.33.0")
	text(&o.Endpoint, "tcp://127.0.0.1:0")
	text(&o.ReplayEndpoint, "tcp://127.0.0.1:0")
	if len(o.Groups) == 0 {
		o.Groups = []Group{{}}
	}
	o.Groups = append([]Group(nil), o.Groups...)
	for i := range o.Groups {
		kind := "full_attention"
		if o.Groups[i].Window > 0 {
			kind = "sliding_window"
		}
		text(&o.Groups[i].Kind, kind)
	}
	if o.Hash == nil {
		o.Hash = chainHash
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	form, err := kvevents.FormFor(o.Engine, o.Release)
	if err == nil && (o.BlockSize < 0 || o.Blocks < 0 || o.CPUBlocks < 0 || o.BufferSteps < 0 || o.SendMessages < 0) {
		err = errors.New("kveventstest: sizes in Options must not be negative")
	}
	for _, g := range o.Groups {
		if g.Window < 0 {
			err = errors.New("kveventstest: a Window in Options must not be negative")
		}
	}
	return o, form.WithDigests(o.Digests), err
}

// chainHash is the default Options.Hash.
func chainHash(parent uint64, chained bool, tokens []uint32) uint64 {
	buf := binary.LittleEndian.AppendUint64(nil, parent)
	for _, t := range tokens {
		buf = binary.LittleEndian.AppendUint32(buf, t)
	}
	return xxh3.HashSeed(buf, uint64(len(tokens)))
}

// Engine is a running fake engine. All its methods may be called by any
// goroutine at any time. It must be closed.
type Engine struct {
	o    Options
	form kvevents.Form

	mu      sync.Mutex
	pub     *zmtp.Pub
	router  *zmtp.Router
	serving sync.WaitGroup
	// endpoint and replay are where the sockets are bound.
	endpoint, replay string
	cache            *cache
	seq              uint64
	newest           float64
	cleared          bool // a clear waits for the next step
	buffer           []message
	faults           faults
	closed           bool
}

type message struct {
	seq     uint64
	payload []byte
}

// Start starts an engine.
func Start(o Options) (*Engine, error) {
	o, form, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{o: o, form: form, endpoint: o.Endpoint, replay: o.ReplayEndpoint, cache: newCache(o)}
	if err := e.open(); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// StartRanks starts the ranks of one data-parallel engine, with the live
// endpoints on consecutive ports of the loopback interface and, with Replay,
// the replay endpoints likewise.
func StartRanks(o Options, ranks int) ([]*Engine, error) {
	if ranks < 1 {
		return nil, fmt.Errorf("kveventstest: %d ranks, want 1 or more", ranks)
	}
	var err error
	for range 50 {
		var all []*Engine
		if all, err = startRanks(o, ranks); err == nil {
			return all, nil
		}
		for _, e := range all {
			e.Close()
		}
	}
	return nil, err
}

func startRanks(o Options, ranks int) (all []*Engine, err error) {
	for rank := range ranks {
		o.Rank = rank
		if rank > 0 {
			if o.Endpoint, err = nextPort(all[rank-1].Endpoint()); err == nil && o.Replay {
				o.ReplayEndpoint, err = nextPort(all[rank-1].ReplayEndpoint())
			}
			if err != nil {
				return all, err
			}
		}
		e, err := Start(o)
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
	return all, nil
}

func nextPort(endpoint string) (string, error) {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(port)
	return fmt.Sprintf("tcp://%s", net.JoinHostPort(host, strconv.Itoa(n+1))), err
}

// open makes the sockets.
func (e *Engine) open() (err error) {
	options := zmtp.Options{SendMessages: e.o.SendMessages}
	if e.pub, err = zmtp.NewPub(options); err != nil {
		return err
	}
	if e.o.Connect {
		err = e.pub.Dial(e.endpoint)
	} else {
		e.endpoint, err = e.pub.Bind(e.endpoint)
	}
	if err != nil || !e.o.Replay {
		return err
	}
	if e.router, err = zmtp.NewRouter(options); err != nil {
		return err
	}
	if e.replay, err = e.router.Bind(e.replay); err != nil {
		return err
	}
	router := e.router
	e.serving.Go(func() { e.serveReplay(router) })
	return nil
}

// shut closes the sockets and waits for the replay server.
func (e *Engine) shut() {
	e.mu.Lock()
	pub, router := e.pub, e.router
	e.pub, e.router = nil, nil
	e.mu.Unlock()
	if pub != nil {
		pub.Close()
	}
	if router != nil {
		router.Close()
	}
	e.serving.Wait()
}

// Close stops the engine as a kill would. It may be called again.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.shut()
	return nil
}

// Restart kills the engine and starts it on the same ports, with an empty
// cache and the sequence from 0.
func (e *Engine) Restart() error {
	e.Kill()
	return e.Revive()
}

// Kill is the first half of Restart: until Revive nobody answers.
func (e *Engine) Kill() { e.shut() }

// Revive is the second half of Restart.
func (e *Engine) Revive() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.pub != nil {
		return errors.New("kveventstest: Revive of an engine that runs or was closed")
	}
	e.cache, e.seq, e.buffer, e.cleared = newCache(e.o), 0, nil, false
	return e.open()
}

// Endpoint is where the live messages are published.
func (e *Engine) Endpoint() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.endpoint
}

// ReplayEndpoint is where replays are served; empty without Options.Replay.
func (e *Engine) ReplayEndpoint() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.o.Replay {
		return ""
	}
	return e.replay
}

// Hashes returns the hashes of the full blocks of a prompt.
func (e *Engine) Hashes(tokens []uint32) (hashes []uint64) {
	parent := uint64(0)
	for i := 0; i+e.o.BlockSize <= len(tokens); i += e.o.BlockSize {
		parent = e.o.Hash(parent, i > 0, tokens[i:i+e.o.BlockSize])
		hashes = append(hashes, parent)
	}
	return hashes
}

// Serve runs one prompt: it returns how many tokens the cache had, as the
// engine would report them, keeps the prompt's blocks, and publishes one batch
// if anything changed. A prompt of more blocks than the GPU pool has is not run.
func (e *Engine) Serve(tokens []uint32) (hit int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(tokens) == 0 {
		return 0
	}
	hit, events := e.cache.serve(tokens, e.Hashes(tokens))
	e.step(events)
	return hit
}

// Reset empties the GPU pool, as POST /reset_prefix_cache does: the clear is
// published with the next step, in front of its events.
func (e *Engine) Reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cache.gpu = newPool(e.o.Blocks)
	e.cleared = true
}

// Publish publishes a batch of the given events, which need not fit the cache:
// for events that a test wants to see on the wire.
func (e *Engine) Publish(events ...kvevents.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publish(events)
}

// Held returns the copies of every block that were announced and are held.
func (e *Engine) Held() map[Block]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cache.held()
}

// Seq returns the sequence of the next batch.
func (e *Engine) Seq() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seq
}

// WaitSubscribed waits until n subscriptions have reached the publisher: only
// what is published after that is sure to be received.
func (e *Engine) WaitSubscribed(ctx context.Context, n int) error {
	for {
		e.mu.Lock()
		pub := e.pub
		e.mu.Unlock()
		if pub != nil && pub.Subscriptions() >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// step publishes what a scheduler step did.
func (e *Engine) step(events []kvevents.Event) {
	if e.cleared {
		e.cleared = false
		events = append([]kvevents.Event{{Kind: kvevents.AllBlocksCleared}}, events...)
	}
	if len(events) > 0 {
		e.publish(events)
	}
}

func (e *Engine) publish(events []kvevents.Event) {
	now := e.o.Clock()
	at := float64(now.UnixNano()) / 1e9
	e.newest = max(at, e.newest+1e-6) // distinct also when the clock is coarse
	b := kvevents.Batch{Timestamp: e.newest, Rank: int32(max(e.o.Rank, 0)), HasRank: e.o.Rank >= 0, Events: events}
	m := message{e.seq, kvevents.AppendBatch(nil, &b, e.form)}
	e.seq++
	e.faults.corrupt(&m)
	e.buffer = append(e.buffer, m)
	if extra := len(e.buffer) - e.o.BufferSteps; extra > 0 {
		e.buffer = e.buffer[extra:]
	}
	for _, m := range e.faults.pass(m) {
		e.send(m)
	}
}

func (e *Engine) send(m message) {
	if e.pub != nil {
		e.pub.Send([]byte(e.o.Topic), binary.BigEndian.AppendUint64(nil, m.seq), m.payload)
	}
}

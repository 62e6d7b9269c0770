package kvevents

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The model test runs a stream against an engine, a network and a replay
// endpoint that all fail at random, beside an oracle that knows the truth.
// "make model-test STEPS=N SEED=S" runs it for longer; with STEPS=1 it runs
// the one seed and logs what happens if it fails.

// fromEnv reads a number from the environment.
func fromEnv(t *testing.T, name string, def uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	v, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, name)
	return v
}

// engine is the publisher with its cache, and what the oracle remembers of it.
type engine struct {
	rng    *rand.Rand
	clock  float64
	life   int // counts restarts
	seq    uint64
	blocks map[uint64]int
	buffer []Message
	keep   int
	// truth has the cache after each batch of each life, by life and sequence.
	truth map[[2]uint64]map[uint64]int
	// lives tells the life of a batch by its timestamp.
	lives map[float64]int
}

func (e *engine) restart() {
	e.life++
	e.seq, e.buffer = 0, nil
	e.blocks = map[uint64]int{}
}

// publish makes the next batch.
func (e *engine) publish() Message {
	e.clock += 0.001 + e.rng.Float64()
	var events []Event
	for range 1 + e.rng.IntN(3) {
		hash := func() uint64 { return uint64(e.rng.IntN(12)) }
		switch n := e.rng.IntN(20); {
		case n == 0:
			events = append(events, Event{Kind: AllBlocksCleared})
		case n < 8 && len(e.blocks) > 0:
			held := slices.Sorted(maps.Keys(e.blocks))
			events = append(events, Event{Kind: BlockRemoved, Hashes: []uint64{held[e.rng.IntN(len(held))]}})
		default:
			events = append(events, Event{Kind: BlockStored, Hashes: []uint64{hash(), hash()}, BlockSize: 16})
		}
		applyTo(e.blocks, &Batch{Events: events[len(events)-1:]})
	}
	payload := AppendBatch(nil, &Batch{Timestamp: e.clock, Events: events}, Form{})
	m := Message{Seq: e.seq, Payload: payload}
	e.truth[[2]uint64{uint64(e.life), e.seq}] = maps.Clone(e.blocks)
	e.lives[e.clock] = e.life
	e.buffer = append(e.buffer, m)
	if len(e.buffer) > e.keep {
		e.buffer = e.buffer[1:]
	}
	e.seq++
	return m
}

// delivery is a live message on its way, or with m nil the news of a new
// connection.
type delivery struct {
	conn uint64
	m    *Message
}

// model is one run.
type model struct {
	*testing.T
	seed uint64
	rng  *rand.Rand
	e    *engine
	o    StreamOptions
	s    *Stream

	now     time.Time
	conn    uint64 // 0: the transport does not tell
	tells   bool
	up      bool
	pipe    []delivery
	stalled int

	asked   uint64 // the request that the network knows
	answers []Reply
	sent    bool

	// What the sink did.
	index   map[uint64]int
	life    int  // life of the last batch applied, -1 for none
	mixed   bool // batches of several lives since the last Clear
	silent  bool // and nothing could have told
	clean   bool // cleared, and nothing applied since
	next    uint64
	perfect bool // faults are off
	verbose bool
	exact   int // checks of each kind
	below   int

	// Another stream may take over, with what was known at a former moment.
	pos     Position // of the last batch applied
	kept    *memory  // a snapshot
	restore *memory  // what the stream that resumed has not been told of yet
	resumed int      // streams that did
	// takesOver: streams are replaced.
	takesOver bool
}

// memory is a snapshot: what is known, where the stream is, and what the oracle
// remembers of it.
type memory struct {
	pos           Position
	index         map[uint64]int
	life          int
	mixed, silent bool
}

// snapshot keeps what is known, as the sink can: it knows of positions and losses only.
func (m *model) snapshot() {
	m.kept = &memory{m.pos, maps.Clone(m.index), m.life, m.mixed, m.silent}
}

// resume lets another stream take over.
func (m *model) resume() {
	var err error
	m.s, err = NewStream(m.o, m)
	require.NoError(m, err)
	m.pipe, m.asked, m.sent, m.answers = nil, 0, false, nil
	m.index, m.life, m.mixed, m.silent, m.clean, m.next, m.pos = map[uint64]int{}, -1, false, false, true, 0, Position{}
	m.restore = m.kept
	if !m.s.Resume(m.kept.pos) {
		require.True(m, m.kept.pos.Next == 0 || !m.o.Replay)
		m.restore = nil
	}
	m.reconnect()
	m.note("resume at %+v", m.kept.pos)
}

func (m *model) Confirm(next uint64) {
	m.note("  confirm %d", next)
	require.NotNil(m, m.restore)
	require.Equal(m, m.restore.pos.Next, next)
	m.index, m.life, m.mixed, m.silent = maps.Clone(m.restore.index), m.restore.life, m.restore.mixed, m.restore.silent
	m.next, m.clean, m.pos, m.restore = next, false, m.restore.pos, nil
	m.resumed++
}

func (m *model) Apply(seq uint64, b *Batch) {
	life, ok := m.e.lives[b.Timestamp]
	require.True(m, ok)
	require.Nil(m, m.restore, "applied before it was told what becomes of what was known")
	require.GreaterOrEqual(m, life, m.life, "a batch of an engine that is known to be dead")
	if m.life >= 0 && !m.clean && life != m.life {
		// Without news of connections, a new engine that goes on with the very
		// number that was expected cannot be told from the old one.
		m.silent = m.silent || !m.tells && seq == m.next
		m.mixed = true
	}
	require.False(m, !m.clean && life == m.life && seq < m.next, "batch %d applied again or out of order", seq)
	if slices.ContainsFunc(b.Events, func(ev Event) bool { return ev.Kind == AllBlocksCleared }) {
		m.mixed, m.silent = false, false // whatever was before is gone
	}
	m.life, m.clean, m.next, m.pos = life, false, seq+1, b.Position
	applyTo(m.index, b)
	m.note("  apply %d of life %d", seq, life)
}

func (m *model) Clear(c ClearCause) {
	m.note("  clear: %v", c)
	clear(m.index)
	m.pos, m.restore = Position{}, nil
	m.mixed, m.silent, m.clean = false, false, true
}

func (m *model) Lost(l Loss) {
	require.NotZero(m, l.Cause)
	require.GreaterOrEqual(m, l.To+1, l.From)
	require.NotEmpty(m, l.Error())
	if m.pos.Missing = true; l.Removals {
		m.pos = Position{}
	}
	m.note("  %v", l)
}

// check holds the index against the truth after the last batch applied.
func (m *model) check() {
	st := m.s.Status(m.now)
	require.LessOrEqual(m, len(m.s.wait.all), m.o.PendingBatches)
	if m.life < 0 || m.silent {
		return
	}
	truth := m.e.truth[[2]uint64{uint64(m.life), m.next - 1}]
	if m.clean {
		truth = nil
	}
	if st.State == Live {
		m.exact++
		if m.clean {
			require.Empty(m, m.index)
			return
		}
		require.False(m, m.mixed, "exact, but of several lives")
		require.Equal(m, truth, m.index, "exact, but not the truth after batch %d of life %d", m.next-1, m.life)
		return
	}
	if st.Excess {
		return // it says that it may be too much
	}
	m.below++
	require.False(m, m.mixed, "batches of several lives, and nothing said")
	for h, n := range m.index {
		require.LessOrEqual(m, n, truth[h], "block %d counted %d times, held %d times, state %v, nothing said", h, n, truth[h], st)
	}
}

// note logs what happens, when one run is asked for.
func (m *model) note(format string, args ...any) {
	if m.verbose {
		st := m.s.Status(m.now)
		m.Logf("%v (%v next %d life %d excess %v unverified %v)", fmt.Sprintf(format, args...), st.State, st.Next, m.life, st.Excess, st.Unverified)
	}
}

func (m *model) chance(n int) bool { return !m.perfect && m.rng.IntN(n) == 0 }

func (m *model) reconnect() {
	// What was on the way is lost from some point on.
	if n := len(m.pipe); n > 0 {
		m.pipe = m.pipe[:m.rng.IntN(n+1)]
	}
	if m.tells {
		m.conn++
	}
	m.up = true
	m.pipe = append(m.pipe, delivery{conn: m.conn})
}

func (m *model) step() {
	m.now = m.now.Add(time.Duration(m.rng.IntN(300)) * time.Millisecond)
	switch n := m.rng.IntN(20); {
	case n < 8: // the engine publishes
		msg := m.e.publish()
		if !m.up || m.chance(15) {
			break // high-water mark
		}
		m.pipe = append(m.pipe, delivery{m.conn, &msg})
		if m.chance(20) { // twice
			m.pipe = append(m.pipe, delivery{m.conn, &msg})
		}
		if k := len(m.pipe); m.chance(20) && k > 1 && m.pipe[k-2].m != nil { // out of order
			m.pipe[k-1], m.pipe[k-2] = m.pipe[k-2], m.pipe[k-1]
		}
	case n < 16:
		m.deliver()
	case n < 18:
		m.replay()
	case n == 18 && m.chance(4): // the connection breaks, the engine perhaps too
		switch m.rng.IntN(4) {
		case 0:
			m.e.restart()
			fallthrough
		case 1:
			m.up = false
			unseen := m.rng.IntN(4)
			if expected := m.s.Status(m.now).Next; m.rng.IntN(2) == 0 && expected > m.e.seq {
				// A new engine that comes close to the number we wait for, or passes it.
				unseen = max(int(expected-m.e.seq)-2+m.rng.IntN(4), 0)
			}
			for range unseen {
				m.e.publish()
			}
			m.reconnect()
		case 2:
			if m.tells {
				m.reconnect()
			}
		default:
			m.e.restart()
			m.reconnect()
		}
	default:
		m.s.Tick(m.now)
	}
	m.follow()
	m.check()
}

func (m *model) deliver() {
	if m.stalled > 0 {
		m.stalled--
		return
	}
	if m.chance(40) {
		m.stalled = m.rng.IntN(30)
	}
	if len(m.pipe) == 0 {
		return
	}
	d := m.pipe[0]
	m.pipe = m.pipe[1:]
	switch {
	case d.m == nil:
		m.s.Connected(m.now, d.conn)
		m.note("connected %d", d.conn)
	case m.chance(200):
		m.s.Garbage() // its frames were damaged
	default:
		m.s.Message(m.now, d.conn, *d.m)
		m.note("message %d of connection %d", d.m.Seq, d.conn)
	}
}

// follow gives the network the request that the stream wants.
func (m *model) follow() {
	q, ok := m.s.Request()
	if !ok || q.ID == m.asked {
		return
	}
	require.True(m, m.o.Replay)
	m.asked, m.sent, m.answers = q.ID, false, nil
	m.note("request %d from %d: %+v", q.ID, q.From, m.s.req)
}

// replay moves the replay by one answer.
func (m *model) replay() {
	q, ok := m.s.Request()
	if !ok || q.ID != m.asked {
		if m.chance(3) { // an answer that nobody waits for
			m.s.Reply(m.now, m.asked, Reply{Seq: 1, Payload: []byte("x")})
		}
		return
	}
	if !m.sent {
		if m.chance(6) {
			m.s.Failed(m.now, q.ID)
			return
		}
		m.sent = true
		m.s.Sent(m.now, q.ID)
		for _, msg := range m.e.buffer {
			old := m.chance(50) && msg.Seq+3 >= q.From
			if (msg.Seq >= q.From || old) && !m.chance(25) {
				m.answers = append(m.answers, Reply{Seq: msg.Seq, Payload: msg.Payload})
			}
		}
		if m.chance(8) && len(m.answers) > 0 { // cut off, or an early end
			m.answers = m.answers[:m.rng.IntN(len(m.answers))]
		}
		if !m.chance(8) {
			m.answers = append(m.answers, Reply{End: true})
		}
		return
	}
	for range 1 + m.rng.IntN(6) {
		if len(m.answers) == 0 {
			return // silent until it times out
		}
		r := m.answers[0]
		m.answers = m.answers[1:]
		m.s.Reply(m.now, q.ID, r)
		m.note("reply %d end %v", r.Seq, r.End)
		m.check()
		if q2, ok := m.s.Request(); !ok || q2.ID != q.ID {
			return
		}
	}
}

// settle turns the faults off and lets everything arrive: the stream must
// then be that of the living engine, and as good as its options allow.
func (m *model) settle() {
	m.perfect = true
	m.stalled = 0
	if m.tells || m.e.seq == 0 {
		m.reconnect()
	}
	for range 400 {
		m.step()
	}
	for range 2000 {
		m.now = m.now.Add(time.Second)
		m.deliver()
		m.s.Tick(m.now)
		m.follow()
		m.replay()
		m.check()
	}
	st := m.s.Status(m.now)
	require.Empty(m, m.pipe)
	require.NotEqual(m, Syncing, st.State)
	require.Equal(m, m.e.seq, st.Next)
	require.False(m, m.o.Replay && st.Unverified)
	if m.e.seq > 0 {
		require.Equal(m, m.e.life, m.life)
	}
}

func TestModel(t *testing.T) {
	steps, first := fromEnv(t, "STEPS", 30_000), fromEnv(t, "SEED", 20)
	type config struct {
		replay, tells bool
		policy        LossPolicy
		keep, pending int
	}
	var configs []config
	for _, replay := range []bool{true, false} {
		for _, tells := range []bool{true, false} {
			for _, policy := range []LossPolicy{ClearOnLoss, DecayOnLoss, KeepOnLoss} {
				for _, keep := range []int{10, 1000} {
					configs = append(configs, config{replay, tells, policy, keep, 5 + 45*(keep/1000)})
				}
			}
		}
	}
	const perRun = 300
	var exact, below, resumed int
	var total StreamStats
	for seed := first; seed == first || (seed-first)*perRun < steps; seed++ {
		c := configs[seed%uint64(len(configs))]
		m := newModel(t, seed, c.tells, c.keep, StreamOptions{Replay: c.replay, OnLoss: c.policy, Decay: 20 * time.Second, PendingBatches: c.pending})
		m.verbose = steps == 1
		m.takesOver = seed%5 < 2
		m.run(perRun)
		resumed += m.resumed
		exact += m.exact
		below += m.below
		st := m.s.Stats()
		total.Applied += st.Applied
		total.Losses += st.Losses
		total.Restarts += st.Restarts
		total.Replays += st.Replays
		total.Failures += st.Failures
	}
	require.True(t, steps < 10_000 || resumed > 0)
	t.Logf("seeds from %d, %d steps: %d checks for equality, %d for no excess; %d streams resumed; %d batches, %d losses, %d restarts, %d replays, %d of them failed",
		first, steps, exact, below, resumed, total.Applied, total.Losses, total.Restarts, total.Replays, total.Failures)
}

func newModel(t *testing.T, seed uint64, tells bool, keep int, o StreamOptions) *model {
	rng := rand.New(rand.NewPCG(seed, 1))
	m := &model{T: t, rng: rng, now: sec(0), tells: tells, index: map[uint64]int{}, life: -1, o: o, seed: seed,
		e: &engine{rng: rng, clock: 1.7e9, keep: keep, truth: map[[2]uint64]map[uint64]int{}, lives: map[float64]int{}}}
	m.e.restart()
	var err error
	m.s, err = NewStream(o, m)
	require.NoError(t, err)
	return m
}

func (m *model) run(steps int) {
	defer func() {
		if m.Failed() {
			m.Logf("seed %d, tells %v, %+v; log: STEPS=1 SEED=%d", m.seed, m.tells, m.o, m.seed)
		}
	}()
	for range m.rng.IntN(20) {
		m.e.publish()
	}
	m.reconnect()
	for range steps {
		m.step()
		if m.takesOver && m.chance(15) {
			m.snapshot()
		}
		if m.takesOver && m.kept != nil && m.chance(40) {
			m.resume()
		}
	}
	m.settle()
}

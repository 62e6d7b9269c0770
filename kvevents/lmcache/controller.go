package lmcache

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/kvatlas/kvatlas/blockhash"
)

const (
	// ErrOptions is wrapped by the errors of [NewController].
	ErrOptions = constError("lmcache: invalid options")
	// ErrHasher is returned by look-ups of tokens where their keys are not known:
	// without [Options.Hasher].
	ErrHasher = constError("lmcache: no Hasher: the keys of tokens are not known (\"builtin\", LMCache's default, is Python's own hash: look up keys)")
	// ErrObserver is wrapped by the errors of [Controller.Handle] for messages that
	// ask for something to be done to workers, which this controller does not.
	ErrObserver = constError("lmcache: not carried out: this controller only observes")
)

// Rules are those of a controller's releases.
type Rules uint8

const (
	// Batched are the rules from 0.3.15: only registered workers are believed, in
	// batches and full syncs; the first holder of a chunk is the first in order of
	// registration.
	Batched Rules = iota
	// Single are the rules to 0.3.9: one message an operation, from anybody; the
	// first holder of a chunk is who admitted it first. Other than that
	// controller, which forgets to, this one drops the chunks of a worker that
	// deregisters, and has an empty address for a peer that it does not know.
	Single
)

// Options configures a [Controller]. The zero value is a controller from 0.3.15
// that is asked for keys.
type Options struct {
	Rules Rules
	// Hasher gives tokens the keys that the workers give them: of engine "lmcache"
	// from 0.4.7, with PartialChunk, as LMCache's controller has it. The
	// controllers to 0.3.15 know no keys that can be computed: only "builtin" gives
	// integers there.
	Hasher *blockhash.Hasher
	// CompletionThreshold is the share of workers that must have finished their
	// full sync before the others are no longer asked for one; 0 = 0.8, LMCache's
	// default.
	CompletionThreshold float64
}

// Controller knows what LMCache's workers hold by their own messages. It is made
// by [NewController] and safe for concurrent use: look-ups share a read lock,
// messages take it alone. It holds some 100 bytes for each chunk of each location.
type Controller struct {
	o    Options
	mu   sync.RWMutex
	tree map[string]*instance
	// holders of a key, in the order in which they admitted it.
	holders map[Key][]*store
	// atIP is the instance that registered last from an address (Single).
	atIP   map[string]string
	serial uint64
	// asked says that the workers have not yet told all they hold to this
	// controller.
	asked bool
	stats Stats
}

// Stats counts what became of messages.
type Stats struct {
	Workers int // registered, or under Single known
	Keys    int // chunks, once for each location
	// Gaps counts messages with a gap in their sequence: something was lost, until
	// the next full sync of that location.
	Gaps uint64
	// Dropped operations and batches were of workers that were not registered or
	// in a full sync, or of another full sync.
	Dropped uint64
}

// A serial is the place in the order of a Python dict: what is taken out and put
// in again comes last.
type instance struct {
	id      string
	serial  uint64
	workers map[int64]*worker
}

type worker struct {
	instance *instance
	id       int64
	serial   uint64
	ip       string
	url      *string
	stores   map[string]*store
	seq      map[string]int64
	sync     *fullSync
}

type store struct {
	worker   *worker
	location string
	serial   uint64
	keys     map[Key]struct{}
}

// NewController makes a controller that knows nothing. The error wraps
// [ErrOptions].
func NewController(o Options) (*Controller, error) {
	if o.CompletionThreshold == 0 {
		o.CompletionThreshold = 0.8
	}
	switch {
	case o.Rules > Single:
		return nil, fmt.Errorf("%w: Rules %d is neither Batched nor Single", ErrOptions, o.Rules)
	case !(o.CompletionThreshold > 0 && o.CompletionThreshold <= 1):
		return nil, fmt.Errorf("%w: CompletionThreshold is %v, want more than 0 and at most 1", ErrOptions, o.CompletionThreshold)
	case o.Hasher == nil:
	case o.Rules == Single, o.Hasher.Scheme().Engine() != "lmcache", o.Hasher.DigestSize() != 8:
		return nil, fmt.Errorf("%w: Hasher of %v: its keys are not the integers of LMCache from 0.4.7", ErrOptions, o.Hasher.Scheme())
	}
	return &Controller{
		o: o, tree: map[string]*instance{}, holders: map[Key][]*store{}, atIP: map[string]string{}, asked: true,
	}, nil
}

// HandleFrame takes a frame that a worker or orchestrator sent and returns the
// reply to send, nil for what is pushed. What cannot be answered is
// an error, and an ErrorMsg for those who wait for a reply.
func (c *Controller) HandleFrame(frame []byte) (reply []byte, err error) {
	m, err := Decode(frame)
	var answer Message
	if err == nil {
		answer, err = c.Handle(m)
	}
	if err != nil {
		answer = &ErrorMsg{Error: err.Error()}
	}
	if answer != nil {
		reply = Append(nil, answer)
	}
	return reply, err
}

// Handle takes a message and returns its reply; nil for what is pushed. The
// message is not kept; nil is [ErrMessage].
func (c *Controller) Handle(m Message) (Message, error) {
	if ask, ok := m.(*LookupMsg); ok {
		return c.handleLookup(ask)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m := m.(type) {
	case *RegisterMsg:
		c.register(m)
		if c.o.Rules == Batched {
			return &RegisterRetMsg{ExtraConfig: map[string]string{}}, nil
		}
	case *HeartbeatMsg:
		return c.heartbeat((*RegisterMsg)(m)), nil
	case *DeRegisterMsg:
		c.deregister(m)
	case *KVAdmitMsg:
		c.single((*KVOperationMsg)(m), Admit)
	case *KVEvictMsg:
		c.single((*KVOperationMsg)(m), Evict)
	case *BatchedKVOperationMsg:
		c.batch(m)
	case *FullSyncStartMsg:
		return c.syncStart(m), nil
	case *FullSyncBatchMsg:
		c.syncBatch(m)
	case *FullSyncEndMsg:
		c.syncEnd(m)
	case *FullSyncStatusMsg:
		return c.syncStatus(m), nil
	case *BatchedP2PLookupMsg:
		return &BatchedP2PLookupRetMsg{LayoutInfo: []PeerLayout{c.peer(m)}}, nil
	case *QueryInstMsg:
		return &QueryInstRetMsg{EventID: m.EventID, InstanceID: c.instanceAt(m.IP)}, nil
	case nil:
		return nil, ErrMessage
	default:
		return nil, fmt.Errorf("%w: %s", ErrObserver, Class(m))
	}
	return nil, nil
}

// Stats returns the counters.
func (c *Controller) Stats() Stats {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s := c.stats
	s.Workers = 0
	for _, i := range c.tree {
		s.Workers += len(i.workers)
	}
	return s
}

func (c *Controller) next() uint64 {
	c.serial++
	return c.serial
}

func (c *Controller) find(instanceID string, workerID int64) *worker {
	if i := c.tree[instanceID]; i != nil {
		return i.workers[workerID]
	}
	return nil
}

func (c *Controller) add(instanceID string, workerID int64) *worker {
	i := c.tree[instanceID]
	if i == nil {
		i = &instance{id: instanceID, serial: c.next(), workers: map[int64]*worker{}}
		c.tree[instanceID] = i
	}
	w := &worker{instance: i, id: workerID, serial: c.next(), stores: map[string]*store{}, seq: map[string]int64{}}
	i.workers[workerID] = w
	return w
}

// register enters a worker, or empties one that is known.
func (c *Controller) register(m *RegisterMsg) {
	w := c.find(m.InstanceID, m.WorkerID)
	switch {
	case w == nil:
		w = c.add(m.InstanceID, m.WorkerID)
	case c.o.Rules == Batched:
		for location := range w.stores {
			c.empty(w, location)
		}
		clear(w.seq)
		return
	}
	w.ip, w.url = m.IP, m.PeerInitURL
	if w.url != nil {
		url := *w.url
		w.url = &url
	}
	c.atIP[m.IP] = m.InstanceID
}

// heartbeat registers a worker that is not known and asks for a full sync of those
// that have not made one to this controller.
func (c *Controller) heartbeat(m *RegisterMsg) Message {
	w := c.find(m.InstanceID, m.WorkerID)
	if c.o.Rules == Single {
		if w == nil || w.ip == "" {
			c.register(m)
		}
		return nil
	}
	answer := &HeartbeatRetMsg{Commands: []HeartbeatCommand{}}
	reason := ""
	if w == nil {
		c.register(m)
		reason = "worker_re_registered"
	} else if c.asked && w.sync == nil {
		reason = "controller_restart"
	}
	if reason != "" {
		answer.Commands = append(answer.Commands, HeartbeatCommand{CommandType: "full_sync", Reason: &reason})
	}
	return answer
}

func (c *Controller) deregister(m *DeRegisterMsg) {
	delete(c.atIP, m.IP)
	w := c.find(m.InstanceID, m.WorkerID)
	if w == nil {
		return
	}
	for location := range w.stores {
		c.empty(w, location)
	}
	if delete(w.instance.workers, w.id); len(w.instance.workers) == 0 {
		delete(c.tree, w.instance.id)
	}
}

// single takes an operation to 0.3.9; later controllers do not look at it.
func (c *Controller) single(m *KVOperationMsg, op OpType) {
	if c.o.Rules == Batched {
		c.stats.Dropped++
		return
	}
	w := c.find(m.InstanceID, m.WorkerID)
	if w == nil {
		w = c.add(m.InstanceID, m.WorkerID)
	}
	c.apply(w, m.Location, op, m.Key)
}

func (c *Controller) batch(m *BatchedKVOperationMsg) {
	w := c.find(m.InstanceID, m.WorkerID)
	if w == nil || w.syncing() || c.o.Rules == Single {
		c.stats.Dropped += uint64(len(m.Operations))
		return
	}
	gap := false
	for _, op := range m.Operations {
		c.apply(w, m.Location, op.OpType, op.Key)
		last, known := w.seq[m.Location]
		gap = gap || known && op.SeqNum != last+1
		w.seq[m.Location] = op.SeqNum
	}
	if gap {
		c.stats.Gaps++
	}
	c.tidy(w, m.Location)
}

// apply makes an operation true. A location stays in its place while a batch
// empties it: see tidy.
func (c *Controller) apply(w *worker, location string, op OpType, key Key) {
	s := w.stores[location]
	if s == nil {
		s = &store{worker: w, location: location, serial: c.next(), keys: map[Key]struct{}{}}
		w.stores[location] = s
	}
	_, held := s.keys[key]
	switch {
	case op == Admit && !held:
		s.keys[key] = struct{}{}
		c.holders[key] = append(c.holders[key], s)
		c.stats.Keys++
	case op == Evict && held:
		delete(s.keys, key)
		c.drop(s, key)
	}
}

// drop takes a store from a key's holders.
func (c *Controller) drop(s *store, key Key) {
	c.stats.Keys--
	all := c.holders[key]
	if len(all) == 1 {
		delete(c.holders, key)
		return
	}
	c.holders[key] = slices.DeleteFunc(all, func(o *store) bool { return o == s })
}

// tidy takes a location out that a batch left empty.
func (c *Controller) tidy(w *worker, location string) {
	if s := w.stores[location]; s != nil && len(s.keys) == 0 {
		delete(w.stores, location)
	}
}

// empty forgets what a location holds.
func (c *Controller) empty(w *worker, location string) {
	s := w.stores[location]
	if s == nil {
		return
	}
	for key := range s.keys {
		c.drop(s, key)
	}
	delete(w.stores, location)
}

// before is the order in which the controller from 0.3.15 walks its tree.
func (s *store) before(o *store) int {
	return cmp.Or(cmp.Compare(s.worker.instance.serial, o.worker.instance.serial),
		cmp.Compare(s.worker.serial, o.worker.serial), cmp.Compare(s.serial, o.serial))
}

// instanceAt returns the instance at an address, nil if there is none.
func (c *Controller) instanceAt(ip string) *string {
	if c.o.Rules == Single {
		if id, ok := c.atIP[ip]; ok {
			return &id
		}
		return nil
	}
	var first *instance
	for _, i := range c.tree {
		for _, w := range i.workers {
			if w.ip == ip && (first == nil || i.serial < first.serial) {
				first = i
			}
		}
	}
	if first == nil {
		return nil
	}
	id := first.id
	return &id
}

func (c *Controller) handleLookup(m *LookupMsg) (Message, error) {
	p := blockhash.Prompt{WideTokens: make([]int64, len(m.Tokens))}
	for i, id := range m.Tokens {
		if p.WideTokens[i] = int64(id); p.WideTokens[i] < 0 {
			return nil, fmt.Errorf("lmcache: LookupMsg.tokens[%d]: %d is no token id", i, id)
		}
	}
	layout, err := c.LookupPrompt(&p)
	if err != nil {
		return nil, err
	}
	return &LookupRetMsg{EventID: m.EventID, LayoutInfo: layout}, nil
}

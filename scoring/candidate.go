package scoring

// WorkerID is the small number under which the caller knows a worker: the same one in
// all parts that are used together, and another router's may differ. A worker that goes
// away is taken out of each part that knows it, by Remove or Forget, before another one
// gets its number. It equals the index's id where the root package fills candidates.
type WorkerID uint32

// Medium says where cached blocks lie. The order is from fastest to slowest.
type Medium uint8

const (
	GPU     Medium = iota // the engine's own device cache
	CPU                   // host memory of the same worker
	Storage               // disk or file system of the same worker
	Remote                // a pool shared by workers

	// NumMedia is the number of media; anything slower counts as Remote.
	NumMedia = 4
)

// String returns the lower-case name of the medium.
func (m Medium) String() string {
	switch m {
	case GPU:
		return "gpu"
	case CPU:
		return "cpu"
	case Storage:
		return "storage"
	case Remote:
		return "remote"
	}
	return "unknown"
}

// Gauge is a measured value or the statement that there is none. The zero value
// is unknown. It is comparable.
//
// The scorers of this package give a candidate whose gauge is unknown the mean
// of the known ones: it neither attracts nor repels. Where none is known all are
// equal.
type Gauge struct {
	Value float64
	Known bool
}

// Known returns the gauge of a measured value.
func Known(v float64) Gauge { return Gauge{Value: v, Known: true} }

// Or returns the value if it is known, else unknown.
func (g Gauge) Or(unknown float64) float64 {
	if g.Known {
		return g.Value
	}
	return unknown
}

// Load is what is known about how busy a worker is. The zero value knows
// nothing. The first three are the engine's own metrics, the rest is what the
// router knows by itself. A known gauge is at least 0; one that cannot be is said
// and counts as unknown, see [Candidate.Validate].
type Load struct {
	// Running and Waiting are requests in the engine's batch and queue
	// (vllm:num_requests_running, vllm:num_requests_waiting).
	Running Gauge
	Waiting Gauge
	// KVUsage is the used part of the KV cache, 0 to 1
	// (vllm:kv_cache_usage_perc).
	KVUsage Gauge

	// Requests is the number of requests sent there and not yet finished.
	Requests Gauge
	// Peers is the number of those that other replicas of this router sent, and
	// told it of ([Peers]). Everything below but Unheard counts them in too.
	Peers Gauge
	// Queued is the number of those that have no first token yet.
	Queued Gauge
	// PrefillTokens is the number of prompt tokens sent there that are still
	// to be computed: uncached ones of requests without a first token.
	PrefillTokens Gauge
	// Unheard is the number of prompt tokens that another replica of this router is
	// expected to be sending there at this moment, so that nobody can have told yet;
	// 0 at the workers that this one has first. See [Peers].
	Unheard Gauge
	// PromptTokens is the number of prompt tokens of all unfinished requests,
	// cached or not.
	PromptTokens Gauge
	// DecodeBlocks is the number of KV blocks held by unfinished requests.
	DecodeBlocks Gauge
	// QPS is the rate of requests sent there, a second.
	QPS Gauge
	// RTT is the network round trip in milliseconds.
	RTT Gauge
	// CacheSize is the size of what was sent there and is remembered (text
	// tree or history), in the unit of that memory.
	CacheSize Gauge
}

// Match is how much of the prompt a worker already holds. The zero value is a
// cold worker.
type Match struct {
	// Blocks counts the blocks of the longest usable prefix by the medium that
	// they would come from: each block once, under the fastest medium that
	// has it. So Blocks[CPU] is "host beyond device".
	Blocks [NumMedia]int32
	// Usable is the number of prompt tokens that the engine will not compute,
	// by its own rules (last token always recomputed, windows, alignment).
	Usable int32
	// Active is the number of the prompt's blocks that running requests of
	// the worker hold at this moment, so that they need no new memory.
	Active int32
	// Speculative is how many of Blocks[GPU] are not confirmed by the engine
	// but brought by requests on their way there; see [Speculation].
	Speculative int32
	// Score is the prefix weighted by medium, in blocks.
	Score float64
}

// Total returns the blocks of all media.
func (m *Match) Total() int32 {
	return m.Blocks[GPU] + m.Blocks[CPU] + m.Blocks[Storage] + m.Blocks[Remote]
}

// Label is one key and value attached to a worker, such as a zone or a role.
type Label struct {
	Key, Value string
}

// Candidate is one worker that may serve the request, as the caller knows it at
// this moment. Copying is a shallow copy of Labels. A policy reads candidates
// during the call only, but the Decision keeps pointers to them.
type Candidate struct {
	ID WorkerID
	// Name identifies the worker to people and to hash rings. Two candidates
	// with one name are the same place on a ring.
	Name string
	// Rank is the data-parallel rank behind the worker's address; 0 if it has
	// only one.
	Rank  int32
	Match Match
	Load  Load
	// Labels are searched linearly; keep them few.
	Labels []Label
	// Capability multiplies what the worker is worth in policies that say
	// so, and divides its predicted time in the default; 0 means 1. To take a
	// worker out of use leave it out, or filter it.
	Capability float64

	of *Candidate // what this is a mended copy of, see Decision.mend
}

// Label returns the value of a label, or "" and false.
func (c *Candidate) Label(key string) (string, bool) {
	for _, l := range c.Labels {
		if l.Key == key {
			return l.Value, true
		}
	}
	return "", false
}

// capability returns the factor with its default.
func (c *Candidate) capability() float64 {
	if c.Capability == 0 {
		return 1
	}
	return c.Capability
}

// Request is what a policy may know about the prompt. The zero value is a
// request about which nothing is known; every part accepts it. A policy does not
// change or keep it.
type Request struct {
	// Tokens is the number of prompt tokens.
	Tokens int
	// BlockSize is the number of tokens in a block; Blocks the number of whole
	// blocks of the prompt. Where Blocks is 0 it follows from the two others.
	BlockSize int
	Blocks    int
	// OutputTokens is the expected number of generated tokens; 0 is unknown.
	OutputTokens int
	// Session identifies a conversation or user for hash rings; empty for none.
	Session string
	// Prefix is a hash of the beginning of the prompt, for parts that place a
	// prompt on a ring; 0 for none.
	Prefix uint64
	// Novel is a hash of the prompt up to and with its first block that no
	// candidate holds; 0 where all is held, or there is no such block.
	Novel uint64
	// Pins are the identities that [Affinity] pins by.
	Pins Pins

	// Subset names the only workers that may be chosen; nil allows all. An
	// empty subset that is not nil allows none.
	Subset []WorkerID
	// Fallbacks is how many further workers to name, best first, for a caller
	// that retries.
	Fallbacks int
	// Explain asks for the value of every scorer for every candidate. It
	// allocates.
	Explain bool
	// DryRun leaves the state of stateful parts (round robin, affinity,
	// least-recently-used) as it is: for explanations and shadow decisions.
	DryRun bool
}

// blocks returns the number of whole blocks, 0 where it cannot be known.
func (r *Request) blocks() int {
	if r.Blocks > 0 {
		return r.Blocks
	}
	if r.BlockSize > 0 && r.Tokens > 0 {
		return r.Tokens / r.BlockSize
	}
	return 0
}

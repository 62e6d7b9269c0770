package metrics

import "github.com/prometheus/client_golang/prometheus"

// metric is one of ours.
type metric uint8

const (
	workers metric = iota
	matches
	matchErrors
	latency
	indexBlocks
	indexBytes
	indexMemory
	indexLost
	indexCopies
	unmatched
	blocks
	events
	restored
	undecodable
	unplaced
	orphans
	held
	forgotten
	unheard
	contradicted
	limited
	predictions
	predictionTokens
	memoSpans
	memoBytes
	memoLimit
	streamState
	streamDoubt
	silent
	connected
	lastMessage
	lag
	lagHistogram
	waiting
	batches
	duplicates
	gaps
	replays
	replayFailures
	restarts
	lost
	lossCauses
	lostCauses
	clearCauses
	malformed
	malformedReasons
	unknownFields
	garbage
	dropped
	foreign
	unattributed
	inFlight
	inFlightExpired
	speculative
	speculation
	shadow
	shadowTokens
	scrapes
	numMetrics
)

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

// variableLabels are all the labels that vary within an instance.
var variableLabels = []string{"worker", "medium", "kind", "operation", "result", "stage", "state", "doubt", "cause", "reason"}

// described is what is said of each metric, with its variable labels.
var described = [numMetrics]struct {
	name   string
	kind   prometheus.ValueType
	labels []string
	help   string
}{
	workers:     {"kvatlas_workers", gauge, nil, "Workers that are registered."},
	matches:     {"kvatlas_matches_total", counter, nil, "Prompts that were looked up in the index, whether to route them or not."},
	matchErrors: {"kvatlas_match_errors_total", counter, nil, "Prompts that could not be looked up because of an error of theirs."},
	latency: {"kvatlas_stage_duration_seconds", 0, []string{"stage"}, "Time of a stage: tokenize (where the caller tells), hash (hash a prompt as far as it is looked up), " +
		"match (look it up), score (filters, scorers and the pick), apply (apply a message of events). They do not overlap."},

	indexBlocks: {"kvatlas_index_blocks", gauge, []string{"worker", "medium"}, "Different KV blocks that a worker is known to hold, by the medium they are on."},
	indexBytes: {"kvatlas_index_bytes", gauge, []string{"worker", "medium"},
		"A worker's share of kvatlas_index_memory_bytes, divided by the KV blocks held; a block that several hold costs little more than one, so this is not what the worker's removal would free."},
	indexMemory: {"kvatlas_index_memory_bytes", gauge, nil,
		"Memory of this process taken to know which worker holds which KV block (keys, tables, lists of holders); it is reused but does not shrink."},
	indexLost:   {"kvatlas_index_lost_blocks_total", counter, nil, "KV blocks that are not known for want of room in the index: forgotten at its limit of bytes, or not entered."},
	indexCopies: {"kvatlas_index_copies", gauge, []string{"worker"}, "Copies of KV blocks that a worker is known to hold beyond the first of each."},
	unmatched: {"kvatlas_index_unmatched_removals_total", counter, []string{"worker"},
		"Removals of KV blocks that the worker was not known to hold: after a start in mid-stream they are normal, later a sign of lost messages."},
	blocks: {"kvatlas_blocks_total", counter, []string{"worker", "operation"}, "KV blocks that a worker's events announced (stored) or gave up (removed)."},
	events: {"kvatlas_events_total", counter, []string{"worker", "kind"},
		"Events of a worker by kind: stored, removed and cleared were applied, malformed and unknown ones left out."},
	restored: {"kvatlas_restored_blocks_total", counter, []string{"worker"},
		"KV blocks of a worker that were taken from another router's snapshot, once its stream went on from there."},
	undecodable: {"kvatlas_undecodable_messages_total", counter, []string{"worker"},
		"Messages given to the index directly that could not be decoded and changed nothing. Those of a subscriber are losses of cause payload."},
	unplaced: {"kvatlas_unplaced_blocks_total", counter, []string{"worker"},
		"KV blocks of a worker with a random hash seed that could not be placed for want of tokens or extra keys, and match no prompt."},
	orphans: {"kvatlas_orphan_blocks", gauge, []string{"worker"},
		"KV blocks that a worker with a random hash seed announced after one that is not known: they match no prompt until it is."},
	held: {"kvatlas_held_batches", gauge, []string{"worker"},
		"Batches of events that wait until they tell what a worker's engine is (Worker.Auto): nothing is matched there until then."},
	forgotten: {"kvatlas_forgotten_batches_total", counter, []string{"worker"},
		"Batches of events that were given up because too many waited to tell what a worker's engine is: blocks that only they announced are not known."},
	unheard: {"kvatlas_worker_unheard", gauge, []string{"worker"},
		"1 while no event of a worker came, or none after a request that it served: nothing is known of its cache, rather than that it is empty."},
	contradicted: {"kvatlas_worker_contradicted", gauge, []string{"worker"},
		"1 when a worker's events contradict its description, such as hashes of another algorithm, seed or block size (a parity mismatch): its prompts are matched by content where the events allow it, else not at all."},
	limited: {"kvatlas_worker_limited", gauge, []string{"worker"},
		"1 when a worker's engine is of a release whose events are known to be wrong in some case, so that what is known of its cache may be too."},

	predictions: {"kvatlas_predictions_total", counter, []string{"worker", "result"},
		"Requests whose predicted cached tokens equalled (exact), exceeded (over) or fell short of (under) what the engine reported."},
	predictionTokens: {"kvatlas_prediction_error_tokens_total", counter, []string{"worker", "result"},
		"Tokens by which predictions exceeded (over) or fell short of (under) the cached tokens that the engine reported."},

	memoSpans: {"kvatlas_hash_memo_spans_total", counter, []string{"result"},
		"Spans of 64 blocks whose hashes were remembered (hit), had to be computed (miss), or were forgotten to make room (evicted)."},
	memoBytes: {"kvatlas_hash_memo_bytes", gauge, nil, "Memory taken by remembered hashes."},
	memoLimit: {"kvatlas_hash_memo_limit_bytes", gauge, nil, "Memory that remembered hashes may take."},

	streamState: {"kvatlas_stream_state", gauge, []string{"worker", "state"},
		"1 for the state a worker's event stream is in: cold (nothing heard), syncing (a replay is under way), live (exact) or degraded (see kvatlas_stream_doubt)."},
	streamDoubt: {"kvatlas_stream_doubt", gauge, []string{"worker", "doubt"},
		"1 when blocks may be held that are not known (missing), blocks may be known that are gone (excess), events of unknown type came since the last clear (unread), or the engine may have restarted unseen (unverified)."},
	silent:      {"kvatlas_stream_silent", gauge, []string{"worker"}, "1 when a worker has published no events for the configured time; an idle engine is silent too."},
	connected:   {"kvatlas_stream_connected", gauge, []string{"worker"}, "1 while the connection to a worker's event publisher stands."},
	lastMessage: {"kvatlas_stream_last_message_timestamp_seconds", gauge, []string{"worker"}, "When a worker's last event message arrived, in Unix time; absent before the first."},
	lag:         {"kvatlas_stream_lag_seconds", gauge, []string{"worker"}, "How long after its timestamp a worker's last event message arrived, measured on two clocks."},
	lagHistogram: {"kvatlas_stream_batch_lag_seconds", 0, nil,
		"Time from the engine's timestamp of a batch of events until it was applied, measured on two clocks; less than zero counts as zero."},
	waiting:        {"kvatlas_stream_waiting_batches", gauge, []string{"worker"}, "Batches that wait for a replay to end."},
	batches:        {"kvatlas_stream_batches_total", counter, []string{"worker"}, "Batches of events that were applied."},
	duplicates:     {"kvatlas_stream_duplicates_total", counter, []string{"worker"}, "Batches that had been applied before, or came from a dead publisher, and were left out."},
	gaps:           {"kvatlas_stream_gaps_total", counter, []string{"worker"}, "Holes found in the sequence of a worker's messages."},
	replays:        {"kvatlas_stream_replays_total", counter, []string{"worker"}, "Replays that a worker was asked for."},
	replayFailures: {"kvatlas_stream_replay_failures_total", counter, []string{"worker"}, "Replays that failed."},
	restarts:       {"kvatlas_stream_restarts_total", counter, []string{"worker"}, "Restarts of a worker's engine."},
	lost: {"kvatlas_stream_lost_batches_total", counter, []string{"worker"},
		"Batches whose events are unknown for good, in whole or in part; those published before we listened included."},
	lossCauses:  {"kvatlas_losses_total", counter, []string{"cause"}, "Times that batches of events were lost, over all workers, by cause; joined is normal."},
	lostCauses:  {"kvatlas_lost_batches_total", counter, []string{"cause"}, "Batches of events that were lost, over all workers, by cause; joined is normal."},
	clearCauses: {"kvatlas_clears_total", counter, []string{"cause"}, "Times that all that was known of a worker's cache was forgotten, over all workers, by cause."},
	malformed:   {"kvatlas_stream_malformed_events_total", counter, []string{"worker"}, "Events of a worker that could not be decoded and were left out."},
	malformedReasons: {"kvatlas_malformed_events_total", counter, []string{"reason"},
		"Events that could not be decoded and were left out, over all workers, by what was wrong with them."},
	unknownFields: {"kvatlas_stream_unknown_fields_total", counter, []string{"worker"}, "Fields of events that are not known here: the engine may be newer than this library."},
	garbage:       {"kvatlas_stream_garbage_total", counter, []string{"worker"}, "Messages whose frames were not those of an event message."},
	dropped:       {"kvatlas_stream_dropped_total", counter, []string{"worker"}, "Messages that were dropped here because they came faster than they could be applied."},
	foreign:       {"kvatlas_stream_foreign_total", counter, []string{"worker"}, "Messages that came on a worker's connection with a topic or rank that is not the worker's."},
	unattributed:  {"kvatlas_unattributed_messages_total", counter, nil, "Messages that came to a listening endpoint with a topic of no worker."},

	inFlight:        {"kvatlas_requests_in_flight", gauge, nil, "Requests that were sent to workers and have not ended."},
	inFlightExpired: {"kvatlas_requests_expired_total", counter, nil, "Requests whose end was never reported and that were taken for ended."},
	speculative:     {"kvatlas_speculative_blocks", gauge, nil, "KV blocks expected of requests that were sent, which no event has confirmed yet."},
	speculation: {"kvatlas_speculation_outcomes_total", counter, []string{"result"},
		"KV blocks that were expected of a request, by what became of them: confirmed or removed by an event, expired, failed with the request, or refused for want of room."},
	shadow: {"kvatlas_shadow_decisions_total", counter, []string{"result"},
		"Decisions that a policy in the shadow (Options.Shadow) made too, without effect: it agreed, would have taken another worker (other), or failed."},
	shadowTokens: {"kvatlas_shadow_cached_tokens", gauge, nil,
		"Usable cached tokens of the workers that a policy in the shadow would have taken, less those of the workers that were taken, over all decisions since the start: falls where the shadow would hit less."},
	scrapes: {"kvatlas_engine_scrapes_total", counter, []string{"worker", "result"}, "Times that a worker's own metrics page was asked for its load: ok or failed."},
}

type desc struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	labels int
}

type descs [numMetrics]desc

func newDescs(constant prometheus.Labels) (d descs) {
	for m, x := range described {
		d[m] = desc{prometheus.NewDesc(x.name, x.help, x.labels, constant), x.kind, len(x.labels)}
	}
	return d
}

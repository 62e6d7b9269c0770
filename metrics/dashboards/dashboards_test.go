// Package dashboards makes the Grafana dashboards in this folder from the tables
// below. To change one, change its table and run
//
//	go test ./dashboards -update
package dashboards

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/kvatlas/kvatlas/metrics"
)

var update = flag.Bool("update", false, "write the dashboards anew")

type board struct {
	uid, title, about string
	panels            []panel
}

type panel struct {
	title, about string
	kind         string // of panel; default timeseries
	unit         string // Grafana's name
	stack        bool
	signed       bool // may be below zero
	queries      []query
}

// query is an expression and the legend of its series. In it F stands for the
// matcher of fleets, W for those of fleets and workers.
type query struct{ expr, legend string }

var boards = []board{
	{"kvatlas-fleet", "kvatlas / Fleet", "What the fleet holds and how much it is asked.", []panel{
		{title: "Workers", about: "Workers that are registered.", kind: "stat", queries: []query{{"sum(kvatlas_workers{F})", "workers"}}},
		{title: "Streams that are live", about: "Share of event streams of which exactly what was published is known.", kind: "stat", unit: "percentunit",
			queries: []query{{`sum(kvatlas_stream_state{F,state="live"}) / sum(kvatlas_stream_state{F})`, "live"}}},
		{title: "Silent workers", about: "Workers that have published no events for the configured time, and those of which none ever came.", kind: "stat",
			queries: []query{{"sum(kvatlas_stream_silent{F})", "silent"}, {"sum(kvatlas_worker_unheard{F})", "unheard"}}},
		{title: "Misdescribed workers", about: "Workers whose events contradict their description: matched by content at best, else not at all.", kind: "stat",
			queries: []query{{"sum(kvatlas_worker_contradicted{F})", "contradicted"}}},
		{title: "Blocks held", about: "Different KV blocks by worker and medium.", unit: "short", queries: []query{{"sum by (worker, medium) (kvatlas_index_blocks{W})", "{{worker}} {{medium}}"}}},
		{title: "Blocks stored and removed", about: "As the workers announce them, and those taken from another router's snapshot (restored). Many removals soon after their stores are caches that are too small.", unit: "cps",
			queries: []query{{"sum by (operation) (rate(kvatlas_blocks_total{W}[$__rate_interval]))", "{{operation}}"},
				{"sum(rate(kvatlas_restored_blocks_total{W}[$__rate_interval])) > 0", "restored"}}},
		{title: "Prompts", about: "Prompts looked up, and those that could not be.", unit: "reqps", queries: []query{
			{"sum(rate(kvatlas_matches_total{F}[$__rate_interval]))", "matched"}, {"sum(rate(kvatlas_match_errors_total{F}[$__rate_interval]))", "failed"}}},
		{title: "Requests in flight", about: "Requests sent that have not ended.", queries: []query{{"sum by (fleet) (kvatlas_requests_in_flight{F})", "{{fleet}}"}}},
		{title: "Further copies", about: "Copies of blocks beyond the first of each: memory that answers no further prompt.", queries: []query{{"sum by (worker) (kvatlas_index_copies{W})", "{{worker}}"}}},
		{title: "Events", about: "Events by kind.", unit: "eps", queries: []query{{"sum by (kind) (rate(kvatlas_events_total{W}[$__rate_interval]))", "{{kind}}"}}},
	}},
	{"kvatlas-streams", "kvatlas / Stream health", "Whether what is known of the workers' caches is complete, and if not, why.", []panel{
		{title: "States", about: "Streams by state: only live ones are known exactly.", stack: true, queries: []query{{"sum by (state) (kvatlas_stream_state{W})", "{{state}}"}}},
		{title: "Doubts", about: "Missing: blocks may be held that are not known. Excess: blocks may be known that are gone. Unread: events of unknown type came, which may be either. Unverified: the engine may have restarted unseen.",
			queries: []query{{"sum by (worker, doubt) (kvatlas_stream_doubt{W}) > 0", "{{worker}} {{doubt}}"}}},
		{title: "Connected, silent", about: "Connections that stand, workers that publish nothing now, and those that never did (unheard).", queries: []query{
			{"sum(kvatlas_stream_connected{W})", "connected"}, {"sum(kvatlas_stream_silent{W})", "silent"}, {"sum(kvatlas_worker_unheard{W})", "unheard"}}},
		{title: "Since the last message", about: "An idle engine publishes nothing.", unit: "s",
			queries: []query{{"time() - max by (worker) (kvatlas_stream_last_message_timestamp_seconds{W})", "{{worker}}"}}},
		{title: "Event lag", about: "From the engine's timestamp until applied; the clocks of two machines are part of it.", unit: "s", queries: []query{
			{"histogram_quantile(0.5, sum by (le) (rate(kvatlas_stream_batch_lag_seconds_bucket{F}[$__rate_interval])))", "median"},
			{"histogram_quantile(0.99, sum by (le) (rate(kvatlas_stream_batch_lag_seconds_bucket{F}[$__rate_interval])))", "99 %"},
			{"max(kvatlas_stream_lag_seconds{W})", "largest of the last messages"}}},
		{title: "Batches", about: "Batches applied.", unit: "cps", queries: []query{{"sum by (worker) (rate(kvatlas_stream_batches_total{W}[$__rate_interval]))", "{{worker}}"}}},
		{title: "Gaps, replays, restarts", about: "A replay that succeeds makes up for a gap.", queries: []query{
			{"sum(increase(kvatlas_stream_gaps_total{W}[$__rate_interval]))", "gaps"}, {"sum(increase(kvatlas_stream_replays_total{W}[$__rate_interval]))", "replays"},
			{"sum(increase(kvatlas_stream_replay_failures_total{W}[$__rate_interval]))", "failed replays"}, {"sum(increase(kvatlas_stream_restarts_total{W}[$__rate_interval]))", "restarts"}}},
		{title: "Lost batches", about: "By cause. Those from before we listened (joined) are normal.", queries: []query{{"sum by (cause) (increase(kvatlas_lost_batches_total{F}[$__rate_interval])) > 0", "{{cause}}"},
			{"sum by (worker) (increase(kvatlas_stream_lost_batches_total{W}[$__rate_interval])) > 0", "{{worker}}"}}},
		{title: "Forgotten", about: "Times that all that was known of a worker was forgotten, by cause.", queries: []query{{"sum by (cause) (increase(kvatlas_clears_total{F}[$__rate_interval])) > 0", "{{cause}}"}}},
		{title: "Not understood", about: "Events left out by reason; messages with wrong frames, of other workers, or with fields of a newer engine.", queries: []query{
			{"sum by (reason) (increase(kvatlas_malformed_events_total{F}[$__rate_interval])) > 0", "{{reason}}"},
			{"sum(increase(kvatlas_stream_garbage_total{W}[$__rate_interval]))", "wrong frames"}, {"sum(increase(kvatlas_stream_foreign_total{W}[$__rate_interval]))", "foreign"},
			{"sum(increase(kvatlas_stream_unknown_fields_total{W}[$__rate_interval]))", "unknown fields"}, {"sum(increase(kvatlas_unattributed_messages_total{F}[$__rate_interval]))", "unattributed"}}},
		{title: "Fallen behind", about: "Batches that wait for a replay, messages dropped here, and duplicates left out.", queries: []query{
			{"sum(kvatlas_stream_waiting_batches{W})", "waiting"}, {"sum(increase(kvatlas_stream_dropped_total{W}[$__rate_interval]))", "dropped"},
			{"sum(increase(kvatlas_stream_duplicates_total{W}[$__rate_interval]))", "duplicates"}}},
	}},
	{"kvatlas-prediction", "kvatlas / Prediction error", "Predicted cached tokens against those that the engines report.", []panel{
		{title: "Exact", about: "Share of predictions that the engine confirmed to the token.", kind: "stat", unit: "percentunit",
			queries: []query{{`sum(rate(kvatlas_predictions_total{W,result="exact"}[$__rate_interval])) / sum(rate(kvatlas_predictions_total{W}[$__rate_interval]))`, "exact"}}},
		{title: "Predictions", about: "Over: the engine had less, evicted meanwhile perhaps. Under: it had more.", unit: "reqps", stack: true,
			queries: []query{{"sum by (result) (rate(kvatlas_predictions_total{W}[$__rate_interval]))", "{{result}}"}}},
		{title: "Wrong by worker", about: "Share of predictions that were not exact.", unit: "percentunit",
			queries: []query{{`1 - sum by (worker) (rate(kvatlas_predictions_total{W,result="exact"}[$__rate_interval])) / sum by (worker) (rate(kvatlas_predictions_total{W}[$__rate_interval]))`, "{{worker}}"}}},
		{title: "Tokens off per request", about: "Mean over all requests, exact ones included.",
			queries: []query{{"sum by (result) (rate(kvatlas_prediction_error_tokens_total{W}[$__rate_interval])) / ignoring (result) group_left sum(rate(kvatlas_predictions_total{W}[$__rate_interval]))", "{{result}}"}}},
		{title: "Unmatched removals", about: "Removals of blocks that were not known: after a start normal, later a sign of lost messages.", unit: "cps",
			queries: []query{{"sum by (worker) (rate(kvatlas_index_unmatched_removals_total{W}[$__rate_interval]))", "{{worker}}"}}},
		{title: "Blocks without a place", about: "Blocks of workers with a random hash seed that cannot be matched.", unit: "cps",
			queries: []query{{"sum by (worker) (rate(kvatlas_unplaced_blocks_total{W}[$__rate_interval]))", "{{worker}}"}}},
		{title: "Orphans", about: "Blocks of such workers that wait for the block before them.", queries: []query{{"sum by (worker) (kvatlas_orphan_blocks{W})", "{{worker}}"}}},
		{title: "Misdescribed workers", about: "1 where events contradict the description, or the engine's release is known to publish wrong events in some case.", queries: []query{
			{"max by (worker) (kvatlas_worker_contradicted{W})", "{{worker}}"}, {"max by (worker) (kvatlas_worker_limited{W}) > 0", "{{worker}}: release"}}},
		{title: "Speculation", about: "What became of blocks that were expected of requests under way.", unit: "cps",
			queries: []query{{"sum by (result) (rate(kvatlas_speculation_outcomes_total{F}[$__rate_interval]))", "{{result}}"}}},
		{title: "Automatic workers", about: "Batches that wait until they tell what a worker's engine is, and those that were given up meanwhile.", queries: []query{
			{"sum by (worker) (kvatlas_held_batches{W})", "{{worker}}"},
			{"sum by (worker) (increase(kvatlas_forgotten_batches_total{W}[$__rate_interval]))", "{{worker}}: given up"}}},
		{title: "Shadow", about: "Share of decisions in which the policy in the shadow, if there is one, agreed.", unit: "percentunit",
			queries: []query{{`sum(rate(kvatlas_shadow_decisions_total{F,result="agreed"}[$__rate_interval])) / sum(rate(kvatlas_shadow_decisions_total{F}[$__rate_interval]))`, "agreed"}}},
		{title: "Hits of the shadow", about: "Cached tokens a decision that the worker of the policy in the shadow has beyond those of the worker taken; below zero it would hit less.", signed: true,
			queries: []query{{"sum(delta(kvatlas_shadow_cached_tokens{F}[$__rate_interval])) / sum(increase(kvatlas_shadow_decisions_total{F}[$__rate_interval]))", "tokens"}}},
	}},
	{"kvatlas-cost", "kvatlas / Cost", "What decisions and events cost in time and memory.", []panel{
		{title: "Time of a stage, 99 %", about: "Tokenize (where the caller tells), hash, match, score, apply: they do not overlap.", unit: "s",
			queries: []query{{"histogram_quantile(0.99, sum by (le, stage) (rate(kvatlas_stage_duration_seconds_bucket{F}[$__rate_interval])))", "{{stage}}"}}},
		{title: "Time of a stage, median", about: "Buckets are 1, 2, 5 to the decade.", unit: "s",
			queries: []query{{"histogram_quantile(0.5, sum by (le, stage) (rate(kvatlas_stage_duration_seconds_bucket{F}[$__rate_interval])))", "{{stage}}"}}},
		{title: "Time spent", about: "Seconds a second: at most as many cores are busy with it.", unit: "none",
			queries: []query{{"sum by (stage) (rate(kvatlas_stage_duration_seconds_sum{F}[$__rate_interval]))", "{{stage}}"}}},
		{title: "Stages", about: "How often.", unit: "ops", queries: []query{{"sum by (stage) (rate(kvatlas_stage_duration_seconds_count{F}[$__rate_interval]))", "{{stage}}"}}},
		{title: "Processor", about: "Cores that the whole process takes, whatever else it does.", queries: []query{
			{"rate(process_cpu_seconds_total[$__rate_interval]) and on (job, instance) kvatlas_workers{F}", "{{instance}}"}}},
		{title: "Memory", about: "Of the whole process, of the index, and of remembered hashes.", unit: "bytes", queries: []query{
			{"process_resident_memory_bytes and on (job, instance) kvatlas_workers{F}", "resident {{instance}}"},
			{"go_memstats_heap_inuse_bytes and on (job, instance) kvatlas_workers{F}", "heap {{instance}}"}, {"sum(kvatlas_index_memory_bytes{F})", "index"},
			{"sum(kvatlas_hash_memo_bytes{F})", "remembered hashes"}}},
		{title: "Memory of the index", about: "What the knowledge of who holds which block takes, by worker and medium: shares of the whole, by blocks held.", unit: "bytes", stack: true,
			queries: []query{{"sum by (worker, medium) (kvatlas_index_bytes{W})", "{{worker}} {{medium}}"}}},
		{title: "Blocks without room", about: "Blocks that found no room in the index and are not known.", queries: []query{
			{"sum by (fleet) (increase(kvatlas_index_lost_blocks_total{F}[$__rate_interval]))", "{{fleet}}"}}},
		{title: "Remembered hashes", about: "Share of spans of blocks that need not be hashed anew.", unit: "percentunit", queries: []query{
			{`sum(rate(kvatlas_hash_memo_spans_total{F,result="hit"}[$__rate_interval])) / sum(rate(kvatlas_hash_memo_spans_total{F,result=~"hit|miss"}[$__rate_interval]))`, "hit"},
			{"sum(kvatlas_hash_memo_bytes{F}) / sum(kvatlas_hash_memo_limit_bytes{F})", "full"}}},
		{title: "Engines asked for their load", about: "Pages read, and those that failed.", unit: "reqps", queries: []query{{"sum by (result) (rate(kvatlas_engine_scrapes_total{W}[$__rate_interval]))", "{{result}}"}}},
		{title: "Scrape of this process", about: "How long Prometheus takes to read these metrics.", unit: "s", queries: []query{
			{"scrape_duration_seconds and on (job, instance) kvatlas_workers{F}", "{{instance}}"}}},
		{title: "Series of this process", about: "What these metrics cost Prometheus.", queries: []query{
			{"scrape_samples_scraped and on (job, instance) kvatlas_workers{F}", "{{instance}}"}}},
	}},
}

type object = map[string]any

var source = object{"type": "prometheus", "uid": "${datasource}"}

// expand puts the matchers in.
func expand(expr string) string {
	expr = regexp.MustCompile(`([{,])F([,}])`).ReplaceAllString(expr, `${1}fleet=~"$$fleet"${2}`)
	return regexp.MustCompile(`([{,])W([,}])`).ReplaceAllString(expr, `${1}fleet=~"$$fleet",worker=~"$$worker"${2}`)
}

func (b board) json() []byte {
	var panels []object
	x, y := 0, 0
	for i, p := range b.panels {
		kind, width, height := p.kind, 12, 8
		if kind == "" {
			kind = "timeseries"
		}
		if kind == "stat" {
			width, height = 6, 4
		}
		if x+width > 24 {
			x, y = 0, y+height
		}
		var targets []object
		for j, q := range p.queries {
			targets = append(targets, object{"refId": string(rune('A' + j)), "datasource": source, "expr": expand(q.expr), "legendFormat": q.legend, "editorMode": "code", "range": true})
		}
		custom := object{"fillOpacity": 10, "showPoints": "never", "stacking": object{"mode": "none"}}
		if p.stack {
			custom["fillOpacity"], custom["stacking"] = 40, object{"mode": "normal"}
		}
		defaults := object{"unit": p.unit, "min": 0, "custom": custom}
		if p.signed {
			delete(defaults, "min")
		}
		if p.unit == "" {
			defaults["unit"] = "short"
		}
		o := object{"id": i + 1, "type": kind, "title": p.title, "description": p.about, "datasource": source, "targets": targets,
			"gridPos":     object{"x": x, "y": y, "w": width, "h": height},
			"fieldConfig": object{"defaults": defaults, "overrides": []object{}}}
		if kind == "stat" {
			o["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "none", "graphMode": "area"}
			delete(defaults, "custom")
		} else {
			o["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}}
		}
		panels = append(panels, o)
		if x += width; x >= 24 {
			x, y = 0, y+height
		}
	}
	values := func(name, query string) object {
		return object{"name": name, "type": "query", "datasource": source, "query": object{"query": query, "refId": name}, "definition": query, "refresh": 2,
			"includeAll": true, "multi": true, "allValue": ".*", "current": object{"text": []string{"All"}, "value": []string{"$__all"}}, "sort": 1}
	}
	out, err := json.MarshalIndent(object{
		"uid": b.uid, "title": b.title, "description": b.about, "tags": []string{"kvatlas"}, "schemaVersion": 39, "version": 1, "editable": true, "refresh": "30s",
		"time": object{"from": "now-1h", "to": "now"}, "timezone": "", "graphTooltip": 1, "panels": panels, "annotations": object{"list": []object{}},
		"links": []object{{"type": "dashboards", "tags": []string{"kvatlas"}, "title": "kvatlas", "asDropdown": true, "includeVars": true, "keepTime": true}},
		"templating": object{"list": []object{
			{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
			values("fleet", "label_values(kvatlas_workers, fleet)"),
			values("worker", `label_values({__name__=~"kvatlas_stream_connected|kvatlas_index_copies",fleet=~"$fleet"}, worker)`),
		}},
	}, "", " ")
	if err != nil {
		panic(err)
	}
	return append(out, '\n')
}

func (b board) file() string { return strings.TrimPrefix(b.uid, "kvatlas-") + ".json" }

// TestDashboards: the files are what the tables say.
func TestDashboards(t *testing.T) {
	for _, b := range boards {
		if *update {
			require.NoError(t, os.WriteFile(b.file(), b.json(), 0o644))
		}
		got, err := os.ReadFile(b.file())
		require.NoError(t, err)
		require.Equal(t, string(b.json()), string(got), "%s: run go test ./dashboards -update", b.file())
	}
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, files, len(boards)+1, "files without a table")
}

// TestEveryMetricIsShown: each of the collector's metrics is on a dashboard, except
// those named here, and no dashboard asks for one that is not there.
func TestEveryMetricIsShown(t *testing.T) {
	apart := map[string]string{
		"kvatlas_losses_total":                  "lost batches tell more",
		"kvatlas_requests_expired_total":        "alert",
		"kvatlas_undecodable_messages_total":    "alert",
		"kvatlas_stream_malformed_events_total": "alert; by reason on the dashboard",
		"kvatlas_speculative_blocks":            "a number without a yardstick",
	}
	c, err := metrics.New(metrics.Options{}, metrics.Instance{})
	require.NoError(t, err)
	descs := make(chan *prometheus.Desc, 1000)
	c.Describe(descs)
	close(descs)
	known := map[string]bool{}
	for d := range descs {
		known[regexp.MustCompile(`fqName: "([^"]*)"`).FindStringSubmatch(d.String())[1]] = true
	}
	shown := map[string]bool{}
	for _, b := range boards {
		for _, name := range regexp.MustCompile(`\bkvatlas_\w+`).FindAllString(string(b.json()), -1) {
			base := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if trimmed, ok := strings.CutSuffix(name, suffix); ok && known[trimmed] {
					base = trimmed
				}
			}
			require.True(t, known[base], "%s asks for %s", b.file(), name)
			shown[base] = true
		}
	}
	for name := range known {
		require.True(t, shown[name] != (apart[name] != ""), "%s is on no dashboard, or is one of those set apart", name)
	}
}

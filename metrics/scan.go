package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/scoring"
)

// scan reads one instance. It adds samples up by series, so that workers beyond
// the bound fall together.
type scan struct {
	in      *instance
	workers bounded
	sums    map[series]float64
	done    []prometheus.Metric
}

type series struct {
	m      metric
	labels [2]string
}

func (s *scan) add(m metric, v float64, labels ...string) {
	k := series{m: m}
	copy(k.labels[:], labels)
	s.sums[k] += v
}

func (s *scan) count(m metric, v uint64, labels ...string) { s.add(m, float64(v), labels...) }

func (s *scan) is(m metric, v bool, labels ...string) {
	n := 0.0
	if v {
		n = 1
	}
	s.add(m, n, labels...)
}

func (s *scan) read(maxWorkers int) {
	var snap kvatlas.Snapshot
	var streams []kvevents.SourceStatus
	var names []string
	if s.in.Atlas != nil {
		snap = s.in.Atlas.Snapshot()
		for i := range snap.Workers {
			snap.Workers[i].Name = text(snap.Workers[i].Name)
			names = append(names, snap.Workers[i].Name)
		}
	}
	if s.in.Subscriber != nil {
		streams = s.in.Subscriber.AppendStatus(nil)
		for i := range streams {
			names = append(names, streamName(streams[i].Source))
		}
	}
	s.workers = bound(names, maxWorkers)
	if s.in.Atlas != nil {
		s.atlas(&snap)
	}
	if s.in.Subscriber != nil {
		for i := range streams {
			s.stream(&streams[i])
		}
		s.count(unattributed, s.in.Subscriber.Unattributed())
	}
	if s.in.Stream != nil {
		s.hook(s.in.Stream)
	}
	if s.in.Latency != nil {
		s.latency(s.in.Latency)
	}
	s.requests(&snap)
}

func (s *scan) atlas(snap *kvatlas.Snapshot) {
	s.add(workers, float64(len(snap.Workers)))
	s.count(matches, snap.Matches)
	s.count(matchErrors, snap.Errors)
	s.add(indexMemory, float64(snap.Index.Bytes))
	s.count(indexLost, snap.Index.Lost+snap.Index.Evicted)
	if snap.Memo.MaxBytes > 0 {
		s.count(memoSpans, snap.Memo.Hits, "hit")
		s.count(memoSpans, snap.Memo.Misses, "miss")
		s.count(memoSpans, snap.Memo.Evicted, "evicted")
		s.add(memoBytes, float64(snap.Memo.Bytes))
		s.add(memoLimit, float64(snap.Memo.MaxBytes))
	}
	var media []string
	for i := range snap.Workers {
		for _, m := range snap.Workers[i].Media {
			media = append(media, text(m))
		}
	}
	told := bound(media, MaxMedia, "GPU", "CPU", "STORAGE")
	for i := range snap.Workers {
		s.worker(&snap.Workers[i], told)
	}
}

func (s *scan) worker(w *kvatlas.WorkerSnapshot, media bounded) {
	name := s.workers.of(w.Name)
	for _, m := range []metric{indexBlocks, indexBytes} {
		s.add(m, 0, name, "GPU") // before the first block
	}
	for i, h := range w.Index.Held {
		medium := media.of(text(w.Media[i]))
		s.add(indexBlocks, float64(h.Blocks), name, medium)
		s.add(indexBytes, w.Bytes[i], name, medium)
	}
	s.count(indexCopies, w.Index.Copies, name)
	s.count(unmatched, w.Index.Unmatched, name)
	s.count(blocks, w.Index.Stored, name, "stored")
	s.count(blocks, w.Index.Removed, name, "removed")
	e := &w.Events
	s.count(events, e.Stored, name, "stored")
	s.count(events, e.Removed, name, "removed")
	s.count(events, e.Cleared, name, "cleared")
	s.count(events, e.Malformed, name, "malformed")
	s.count(events, e.UnknownTypes, name, "unknown")
	s.count(restored, e.Restored, name)
	s.count(undecodable, e.Undecodable, name)
	s.count(unplaced, e.Unplaced, name)
	s.add(orphans, float64(w.Content.Waiting), name)
	s.add(held, float64(e.Held), name)
	s.count(forgotten, e.Forgotten, name)
	s.is(unheard, e.Unheard, name)
	s.is(contradicted, e.Contradiction != "", name)
	s.is(limited, e.Limitation != "", name)
	if s.in.Subscriber == nil {
		s.count(lost, e.LostBatches, name)
	}
	p := &w.Prediction
	s.count(predictions, p.Exact, name, "exact")
	s.count(predictions, p.Over, name, "over")
	s.count(predictions, p.Under, name, "under")
	s.count(predictionTokens, p.OverTokens, name, "over")
	s.count(predictionTokens, p.UnderTokens, name, "under")
	if s.in.Scraper != nil {
		if st, err := s.in.Scraper.Status(w.Name); err == nil {
			s.count(scrapes, st.Pages, name, "ok")
			s.count(scrapes, st.Failures, name, "failed")
		}
	}
}

func (s *scan) stream(st *kvevents.SourceStatus) {
	name := s.workers.of(streamName(st.Source))
	for state := kvevents.Cold; state <= kvevents.Degraded; state++ {
		s.is(streamState, st.State == state, name, state.String())
	}
	s.is(streamDoubt, st.Missing, name, "missing")
	s.is(streamDoubt, st.Excess, name, "excess")
	s.is(streamDoubt, st.Unread, name, "unread")
	s.is(streamDoubt, st.Unverified, name, "unverified")
	s.is(silent, st.Silent, name)
	s.is(connected, st.Connected, name)
	if !st.LastArrival.IsZero() && name != other { // times do not add up
		s.add(lastMessage, float64(st.LastArrival.UnixMilli())/1e3, name)
		s.add(lag, st.Lag.Seconds(), name)
	}
	s.add(waiting, float64(st.Waiting), name)
	x := &st.Stats
	s.count(batches, x.Applied, name)
	s.count(duplicates, x.Duplicates, name)
	s.count(gaps, x.Gaps, name)
	s.count(replays, x.Replays, name)
	s.count(replayFailures, x.Failures, name)
	s.count(restarts, x.Restarts, name)
	s.count(lost, x.Lost, name)
	all := uint64(0)
	for _, n := range x.Malformed {
		all += n
	}
	s.count(malformed, all, name)
	s.count(unknownFields, x.UnknownFields, name)
	s.count(garbage, x.Garbage, name)
	s.count(dropped, st.Dropped, name)
	s.count(foreign, st.Foreign, name)
}

func (s *scan) hook(h *StreamHook) {
	for i, reason := range reasons {
		s.count(malformedReasons, h.malformed[i].Load(), reason)
	}
	for i, cause := range losses {
		s.count(lossCauses, h.losses[i].Load(), cause)
		s.count(lostCauses, h.lost[i].Load(), cause)
	}
	for i, cause := range clears {
		s.count(clearCauses, h.clears[i].Load(), cause)
	}
	s.done = append(s.done, h.lag.metric(s.in.descs[lagHistogram].desc, lagBounds))
}

func (s *scan) latency(l *Latency) {
	d := s.in.descs[latency].desc
	s.done = append(s.done, l.tokenize.metric(d, latencyBounds, "tokenize"))
	for i := range l.stages {
		s.done = append(s.done, l.stages[i].metric(d, latencyBounds, kvatlas.Stage(i).String()))
	}
}

// requests are those that the Atlas knows of and those of the caller's own account.
func (s *scan) requests(snap *kvatlas.Snapshot) {
	if s.in.InFlight != nil {
		s.inFlight(s.in.InFlight.Stats())
	}
	if s.in.Speculation != nil {
		s.speculation(s.in.Speculation.Stats())
	}
	if s.in.Atlas != nil {
		s.inFlight(snap.InFlight)
		s.speculation(snap.Speculation)
		sh := &snap.Shadow
		s.count(shadow, sh.Agreed, "agreed")
		s.count(shadow, sh.Decisions-sh.Agreed-sh.Failed, "other")
		s.count(shadow, sh.Failed, "failed")
		s.add(shadowTokens, float64(sh.CachedTokens))
	}
}

func (s *scan) inFlight(x scoring.InFlightStats) {
	s.add(inFlight, float64(x.Requests))
	s.count(inFlightExpired, x.Expired)
}

func (s *scan) speculation(x scoring.SpeculationStats) {
	s.add(speculative, float64(x.Entries))
	s.count(speculation, x.Confirmed, "confirmed")
	s.count(speculation, x.Removed, "removed")
	s.count(speculation, x.Expired, "expired")
	s.count(speculation, x.Failed, "failed")
	s.count(speculation, x.Refused, "refused")
}

func (s *scan) send(ch chan<- prometheus.Metric) {
	for k, v := range s.sums {
		d := &s.in.descs[k.m]
		ch <- prometheus.MustNewConstMetric(d.desc, d.kind, v, k.labels[:d.labels]...)
	}
	for _, m := range s.done {
		ch <- m
	}
}

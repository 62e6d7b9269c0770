package lmcache

// Full sync (lmcache/v1/cache_controller/controllers/full_sync_tracker.py): a worker
// tells all that a location holds, in batches, after what was known of it is
// forgotten. What it does meanwhile is thrown away.

type fullSync struct {
	id       string
	done     bool
	expected int64
	received map[int64]struct{}
}

func (w *worker) syncing() bool { return w.sync != nil && !w.sync.done }

func (c *Controller) syncStart(m *FullSyncStartMsg) *FullSyncStartRetMsg {
	w := c.find(m.InstanceID, m.WorkerID)
	if w == nil || w.syncing() && w.sync.id != m.SyncID {
		why := "Failed to start sync: worker already syncing with different sync_id or worker not found"
		return &FullSyncStartRetMsg{SyncID: m.SyncID, ErrorMsg: &why}
	}
	w.sync = &fullSync{id: m.SyncID, expected: m.BatchCount, received: map[int64]struct{}{}}
	if w.stores[m.Location] != nil {
		c.empty(w, m.Location)
		delete(w.seq, m.Location)
	}
	return &FullSyncStartRetMsg{SyncID: m.SyncID, Accepted: true}
}

func (c *Controller) syncBatch(m *FullSyncBatchMsg) {
	w := c.find(m.InstanceID, m.WorkerID)
	if w == nil || !w.syncing() || w.sync.id != m.SyncID {
		c.stats.Dropped++
		return
	}
	if m.BatchID >= 0 && m.BatchID < w.sync.expected { // others change nothing of what is missing
		w.sync.received[m.BatchID] = struct{}{}
	}
	for _, key := range m.Keys {
		c.apply(w, m.Location, Admit, key)
	}
}

func (c *Controller) syncEnd(m *FullSyncEndMsg) {
	w := c.find(m.InstanceID, m.WorkerID)
	if w == nil || w.sync == nil || w.sync.id != m.SyncID {
		c.stats.Dropped++
		return
	}
	w.sync.done = true
}

// maxMissing bounds the list of missing batches, whose number a worker only claims.
const maxMissing = 1 << 16

func (c *Controller) syncStatus(m *FullSyncStatusMsg) *FullSyncStatusRetMsg {
	answer := &FullSyncStatusRetMsg{SyncID: m.SyncID, MissingBatches: []int64{}}
	if w := c.find(m.InstanceID, m.WorkerID); w != nil && w.sync != nil && w.sync.id == m.SyncID {
		answer.IsComplete = w.sync.done
		for i := int64(0); !w.sync.done && i < w.sync.expected && len(answer.MissingBatches) < maxMissing; i++ {
			if _, ok := w.sync.received[i]; !ok {
				answer.MissingBatches = append(answer.MissingBatches, i)
			}
		}
	}
	ready, total := 0, 0
	for _, i := range c.tree {
		for _, w := range i.workers {
			if total++; !w.syncing() {
				ready++
			}
		}
	}
	if total > 0 {
		answer.GlobalProgress = float64(ready) / float64(total)
	}
	if answer.CanExitFreeze = answer.GlobalProgress >= c.o.CompletionThreshold; answer.CanExitFreeze {
		c.asked = false
	}
	return answer
}

package kvatlas

import (
	"math/rand/v2"

	"github.com/kvatlas/kvatlas/scoring"
)

// PeerNote is what a replica of a router tells the others of a request that it
// sent: see [Options.Tell]. It is plain data, for any encoding; Worker is the name,
// as replicas number workers each in their own way.
type PeerNote struct {
	Worker string
	scoring.PeerNote
}

// Heard counts in what another replica told, so that this one decides as if it had
// sent the request. Notes of one replica must come in order; one that comes twice
// counts once. It returns [ErrUnknownWorker] for a worker that is not here, and an error
// that wraps [scoring.ErrPeerEvent] for an event that is not known; the note counts
// nothing then.
func (a *Atlas) Heard(n PeerNote) error {
	w, err := a.find(n.Worker)
	if err != nil {
		return err
	}
	n.PeerNote.Observation.Worker = w.serial
	return a.peers.Heard(&n.PeerNote)
}

// tell tells the other replicas what became of the request.
func (t *Trip) tell(event scoring.PeerEvent, n scoring.PeerNote) {
	if t.a == nil || t.a.options.Tell == nil {
		return
	}
	if event == scoring.PeerSent {
		t.id = rand.Uint64()
	}
	n.Request, n.Replica, n.Event = t.id, t.a.replica, event
	t.a.options.Tell(PeerNote{t.worker, n})
}

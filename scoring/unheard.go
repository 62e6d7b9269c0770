package scoring

import (
	"math"
	"time"
)

// unheard learns how many prompt tokens other replicas send while this one decides,
// when neither can have heard of the other: what is told within a moment after a
// decision, beyond what was told within the same moment before it. In a steady load,
// however high, the two are equal; of requests that reach all replicas at one instant
// everything is told after. So nobody needs to know how late notes are, as long as that
// is less than unheardWindow. The zero value has learned nothing and expects nothing.
type unheard struct {
	at         time.Time
	own, heard float64   // decisions here and tokens told, fading with unheardWindow
	last       time.Time // when something was told

	tokens, decisions float64 // sums over decisions, of which the latest count most
}

const (
	unheardWindow = 50 * time.Millisecond
	unheardDecay  = 0.98
	unheardSurely = 10 // decisions; fewer say less
)

func (u *unheard) fade(now time.Time) {
	if passed := now.Sub(u.at); passed > 0 {
		left := math.Exp(-passed.Seconds() / unheardWindow.Seconds())
		u.own, u.heard, u.at = u.own*left, u.heard*left, now
	}
}

// decided counts a request of one's own.
func (u *unheard) decided(now time.Time) {
	u.fade(now)
	u.tokens = unheardDecay*u.tokens - u.heard
	u.decisions = unheardDecay*u.decisions + 1
	u.own++
}

// told counts a request of another replica, by the tokens to be computed for it.
func (u *unheard) told(now time.Time, tokens int) {
	u.fade(now)
	u.tokens += u.own * float64(tokens)
	u.heard += float64(tokens)
	u.last = now
}

// expected returns the tokens of all others at a decision.
func (u *unheard) expected() float64 {
	return max(0, u.tokens) / max(unheardSurely, u.decisions)
}

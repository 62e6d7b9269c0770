package scrape

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"strings"
	"time"
)

const (
	// recheck is how often the whole page is read where selections work, and how
	// often they are tried again where they do not.
	recheck = 5 * time.Minute
	// minWhole is the length of a page from which on a selection is worth a try.
	minWhole = 4 << 10
)

// selection reads the page of one engine, and where the engine can do so only
// what is wanted of it. Python's prometheus_client answers name[]=... in the query with
// these metrics alone, which saves the engine the time to write the others: but
// not where it merges the files of several processes (SGLang; vLLM with several
// API servers), and vLLM's own handler of /metrics does not look at the query,
// while /metrics/ leads to one that does.
//
// So nothing is taken for granted. The whole page is read first; a selection that
// then lacks anything the whole page had is not used, and the whole page is read
// in the same turn.
type selection struct {
	fetcher *fetcher
	whole   *request
	ways    []*request // of selecting; made once the engine is known
	way     int        // the one in use; len(ways) = none works
	wants   nameSet    // what the whole page had
	ranks   int
	size    int
	again   time.Time // when to read the whole page again
	asked   *request  // of this turn; nil before and after
	failed  bool      // in this turn a selection did not do
}

// ask begins a turn without waiting. It reports whether it could: then arrived or,
// whatever that says, read ends the turn.
func (s *selection) ask() bool {
	if r := s.next(); s.fetcher.ask(r) {
		s.asked = r
	}
	return s.asked != nil
}

// arrived ends a turn that was begun by ask, as read does, if the answer is there
// and enough. Else the error is errNotYet.
func (s *selection) arrived(p *Page, in *inbox, body *bytes.Buffer) (selected bool, err error) {
	if err := s.fetcher.arrived(s.asked, in, body); err == errNotYet {
		return false, err
	} else if selected, again, err := s.judge(p, body, err); !again {
		return selected, err
	}
	return false, errNotYet
}

// read reads the page into p; body is for its use. It reports whether the page was
// a selection.
func (s *selection) read(ctx context.Context, p *Page, body *bytes.Buffer) (selected bool, err error) {
	if s.asked == nil {
		s.asked = s.next()
	}
	for again := true; again; {
		selected, again, err = s.judge(p, body, s.fetcher.get(ctx, s.asked, body))
	}
	return selected, err
}

func (s *selection) next() *request {
	if s.way < len(s.ways) && time.Now().Before(s.again) {
		return s.ways[s.way]
	}
	return s.whole
}

// judge reads an answer into p and draws its conclusions, after which the turn has
// ended, or is to go on with the whole page.
func (s *selection) judge(p *Page, body *bytes.Buffer, err error) (selected, again bool, _ error) {
	if err == nil {
		err = Parse(p, body.Bytes())
	} else {
		p.empty() // what it has is of another turn
	}
	if err != nil {
		err = &pageError{s.asked.URL, err}
	}
	r, failed := s.asked, s.failed
	s.asked, s.failed = nil, false
	if r != s.whole {
		switch bad := (*statusError)(nil); {
		case err == nil && p.seen.has(s.wants) && len(p.Ranks) >= s.ranks:
			if selected = body.Len() < s.size/2; !selected {
				s.way++ // all of it came
			}
		case err == nil || errors.Is(err, ErrNoMetrics) || errors.Is(err, ErrUnreadable) || errors.As(err, &bad):
			s.asked, s.failed = s.whole, true
			return false, true, nil
		} // else no answer: the way is not to blame
		return selected, false, err
	}
	if err != nil {
		return false, false, err
	}
	s.wants, s.ranks, s.size = p.seen, len(p.Ranks), body.Len()
	switch now := time.Now(); {
	case failed:
		s.way++
	case !now.Before(s.again):
		s.again = now.Add(recheck)
		if s.way == len(s.ways) {
			s.way, s.ways = 0, s.selections()
		}
	}
	return false, false, nil
}

// selections are requests for all that is wanted of an engine of the kind whose
// page was read, also for what it did not show yet.
func (s *selection) selections() (all []*request) {
	if s.fetcher.o.Whole || s.size < minWhole || s.wants == 0 {
		return nil
	}
	query := url.Values{}
	for _, prefix := range prefixes {
		for i, n := range names {
			if strings.HasPrefix(n.name, prefix) && s.wants&prefixSet(prefix) != 0 {
				query.Add("name[]", names[i].name)
			}
		}
	}
	for _, slash := range []string{"", "/"} {
		u := *s.whole.URL
		if u.Path += slash; strings.HasSuffix(u.Path, "//") {
			continue
		}
		if u.RawQuery != "" {
			u.RawQuery += "&"
		}
		u.RawQuery += query.Encode()
		if r, err := s.fetcher.request(u.String()); err == nil {
			all = append(all, r)
		}
	}
	return all
}

func prefixSet(prefix string) (set nameSet) {
	for i, n := range names {
		if strings.HasPrefix(n.name, prefix) {
			set |= 1 << i
		}
	}
	return set
}

package scrape

import (
	"bytes"
	"context"
	"errors"
	"net/http"
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
	whole   *http.Request
	ways    []*http.Request // of selecting; made once the engine is known
	way     int             // the one in use; len(ways) = none works
	wants   nameSet         // what the whole page had
	ranks   int
	size    int
	again   time.Time // when to read the whole page again
}

// read reads the page into p, if it can wait not before the given time; body is
// for its use. It reports whether the page was a selection.
func (s *selection) read(ctx context.Context, notBefore time.Time, p *Page, body *bytes.Buffer) (selected bool, err error) {
	now := time.Now()
	failed := false
	if s.way < len(s.ways) && now.Before(s.again) {
		err := s.get(ctx, notBefore, s.ways[s.way], p, body)
		switch bad := (*statusError)(nil); {
		case err == nil && p.seen.has(s.wants) && len(p.Ranks) >= s.ranks:
			if selected = body.Len() < s.size/2; !selected {
				s.way++ // all of it came
			}
			return selected, nil
		case err != nil && !errors.Is(err, ErrNoMetrics) && !errors.As(err, &bad):
			return false, err // no answer: the way is not to blame
		}
		failed = true
	}
	if err := s.get(ctx, notBefore, s.whole, p, body); err != nil {
		return false, err
	}
	s.wants, s.ranks, s.size = p.seen, len(p.Ranks), body.Len()
	switch {
	case failed:
		s.way++
	case !now.Before(s.again):
		s.again = now.Add(recheck)
		if s.way == len(s.ways) {
			s.way, s.ways = 0, s.selections()
		}
	}
	return false, nil
}

func (s *selection) get(ctx context.Context, notBefore time.Time, page *http.Request, p *Page, body *bytes.Buffer) error {
	if err := s.fetcher.get(ctx, notBefore, page, body); err != nil {
		return err
	}
	return Parse(p, body.Bytes())
}

// selections are requests for all that is wanted of an engine of the kind whose
// page was read, also for what it did not show yet.
func (s *selection) selections() (all []*http.Request) {
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

package blockhash

import (
	"fmt"
	"strconv"
	"strings"
)

// version is a release number: major, minor, patch.
type version [3]int

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

func (v version) less(w version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

// parseVersion reads one to three numbers and reports whether what follows
// marks a build before or beside the release (rc, a, b, dev). A local part
// ("+cpu") and a post release do not.
func parseVersion(s string) (v version, pre, ok bool) {
	s = strings.TrimPrefix(strings.TrimSpace(s), "v")
	s, _, _ = strings.Cut(s, "+")
	for i := 0; ; i++ {
		n := 0
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			n++
		}
		if n == 0 || n > 6 {
			return v, false, false
		}
		v[i], _ = strconv.Atoi(s[:n])
		s = s[n:]
		next, more := strings.CutPrefix(s, ".")
		if !more || next == "" || next[0] < '0' || next[0] > '9' || i == len(v)-1 {
			break
		}
		s = next
	}
	if s == "" {
		return v, false, true
	}
	tail := strings.ToLower(strings.TrimLeft(s, ".-_"))
	switch {
	case strings.HasPrefix(tail, "post"):
		return v, strings.Contains(tail, "dev"), true
	case strings.HasPrefix(tail, "rc"), strings.HasPrefix(tail, "dev"), strings.HasPrefix(tail, "a"), strings.HasPrefix(tail, "b"):
		return v, true, true
	}
	return v, false, false
}

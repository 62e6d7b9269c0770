package tokenize

import (
	"strings"

	"github.com/kvatlas/kvatlas/tokenize/internal/unidata"
)

// normOp is one step of a normalizer.
type normOp struct {
	kind     normKind
	form     unidata.Form
	old, new string
}

type normKind uint8

const (
	normForm    normKind = iota // to a Unicode normalization form
	normLower                   // each code point in lower case
	normPrepend                 // new before a text that is not empty
	normReplace                 // old becomes new
)

// keeps reports that op is sure to leave s as it is.
func (op *normOp) keeps(u *unidata.Tables, s string) bool {
	switch op.kind {
	case normForm:
		return u.Normal(op.form, s)
	case normPrepend:
		return s == "" || op.new == ""
	case normReplace:
		return !strings.Contains(s, op.old)
	default:
		return false
	}
}

func (op *normOp) appendTo(dst []byte, u *unidata.Tables, s string, work *[]rune) []byte {
	switch op.kind {
	case normForm:
		return u.AppendNormal(dst, op.form, s, work)
	case normLower:
		return u.AppendLower(dst, s)
	case normPrepend:
		return append(append(dst, op.new...), s...)
	default:
		for {
			i := strings.Index(s, op.old)
			if i < 0 {
				return append(dst, s...)
			}
			dst = append(append(dst, s[:i]...), op.new...)
			s = s[i+len(op.old):]
		}
	}
}

// normalizeBuffers are the working memory of normalize: two texts that take
// turns, and code points.
type normalizeBuffers struct {
	text  [2][]byte
	runes []rune
}

// normalize applies ops to s. The result is s itself or lies in b, until the
// next call.
func normalize(u *unidata.Tables, ops []normOp, s string, b *normalizeBuffers) string {
	turn := 0
	for i := range ops {
		op := &ops[i]
		if op.keeps(u, s) {
			continue
		}
		b.text[turn] = op.appendTo(b.text[turn][:0], u, s, &b.runes)
		s = view(b.text[turn])
		turn = 1 - turn
	}
	return s
}

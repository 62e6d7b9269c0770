package chat

import (
	"fmt"
	"strings"
	"time"
)

// strftimeNow is datetime.now().strftime in the C locale.
func strftimeNow(r *run, args []Value, kwargs []kwarg) (Value, error) {
	p, err := params("strftime_now", args, kwargs, "format")
	if err != nil {
		return nil, err
	}
	format, ok := p[0].(string)
	if !ok {
		return nil, failf("strftime_now takes a string")
	}
	return strftime(format, r.t.now())
}

func strftime(format string, t time.Time) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		pad := true
		if i < len(format) && format[i] == '-' { // of the C library of Linux
			pad = false
			i++
		}
		if i >= len(format) {
			return "", unsupported("directive of strftime_now", "%")
		}
		two := func(n int) {
			if pad {
				fmt.Fprintf(&b, "%02d", n)
			} else {
				fmt.Fprint(&b, n)
			}
		}
		hour := (t.Hour()+11)%12 + 1
		switch c := format[i]; {
		case c == 'd':
			two(t.Day())
		case c == 'm':
			two(int(t.Month()))
		case c == 'y':
			two(t.Year() % 100)
		case c == 'H':
			two(t.Hour())
		case c == 'I':
			two(hour)
		case c == 'M':
			two(t.Minute())
		case c == 'S':
			two(t.Second())
		case !pad:
			return "", unsupported("directive of strftime_now", "%-"+string(c))
		case c == 'e':
			fmt.Fprintf(&b, "%2d", t.Day())
		case c == 'j':
			fmt.Fprintf(&b, "%03d", t.YearDay())
		case c == 'Y':
			fmt.Fprintf(&b, "%d", t.Year())
		case c == 'b':
			b.WriteString(t.Format("Jan"))
		case c == 'B':
			b.WriteString(t.Format("January"))
		case c == 'a':
			b.WriteString(t.Format("Mon"))
		case c == 'A':
			b.WriteString(t.Format("Monday"))
		case c == 'p':
			b.WriteString(t.Format("PM"))
		case c == 'F':
			b.WriteString(t.Format("2006-01-02"))
		case c == 'T':
			b.WriteString(t.Format("15:04:05"))
		case c == '%':
			b.WriteByte('%')
		default:
			return "", unsupported("directive of strftime_now", "%"+string(c))
		}
	}
	return b.String(), nil
}

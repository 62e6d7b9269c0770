package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// reference is the policy that a summary compares the others with.
const reference = "kvatlas"

// cell is one scenario at one load, with the results of each policy over seeds.
type cell struct {
	scenario string
	load     float64
	policies map[string][]line
}

// summarize reads JSON lines of earlier runs and prints, for each scenario and
// load, kvatlas beside the best of the other policies, averaged over seeds.
func summarize(files string, out io.Writer) error {
	var cells []*cell
	for name := range strings.SplitSeq(files, ",") {
		in, err := open(name)
		if err != nil {
			return err
		}
		scan := bufio.NewScanner(in)
		for n := 1; scan.Scan(); n++ {
			var l line
			if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
				in.Close()
				return fmt.Errorf("%s line %d: %w", name, n, err)
			}
			i := slices.IndexFunc(cells, func(c *cell) bool { return c.scenario == l.Scenario && c.load == l.Load })
			if i < 0 {
				i = len(cells)
				cells = append(cells, &cell{l.Scenario, l.Load, map[string][]line{}})
			}
			cells[i].policies[l.Policy] = append(cells[i].policies[l.Policy], l)
		}
		if err := cmp.Or(scan.Err(), in.Close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	slices.SortStableFunc(cells, func(a, b *cell) int {
		return cmp.Or(cmp.Compare(a.scenario, b.scenario), cmp.Compare(a.load, b.load))
	})
	fmt.Fprintln(out, "| scenario | load | kvatlas goodput/s (good) | best other | its goodput/s | ratio | second | ratio | TTFT p50 / p99 ms | its | max/mean load | prefill / unique | join s |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, c := range cells {
		c.print(out)
	}
	return nil
}

func (c *cell) print(out io.Writer) {
	own := c.policies[reference]
	if len(own) == 0 {
		return
	}
	goodput := func(l *line) float64 { return l.Goodput }
	var others []string
	for _, name := range sortedKeys(c.policies) {
		if name != reference {
			others = append(others, name)
		}
	}
	slices.SortStableFunc(others, func(a, b string) int {
		return cmp.Compare(average(c.policies[b], goodput), average(c.policies[a], goodput))
	})
	ours := average(own, goodput)
	fmt.Fprintf(out, "| %s | %g | %.2f (%.3f) ", c.scenario, c.load, ours, average(own, func(l *line) float64 { return l.GoodShare }))
	times := func(ls []line) string {
		return fmt.Sprintf("%.0f / %.0f", average(ls, func(l *line) float64 { return l.TTFT50 }), average(ls, func(l *line) float64 { return l.TTFT99 }))
	}
	if len(others) > 1 {
		first, second := average(c.policies[others[0]], goodput), average(c.policies[others[1]], goodput)
		fmt.Fprintf(out, "| %s | %.2f | %.3f | %s | %.3f | %s | %s ", others[0], first, ours/first, others[1], ours/second, times(own), times(c.policies[others[0]]))
	} else {
		fmt.Fprintf(out, "| | | | | | %s | ", times(own))
	}
	fmt.Fprintf(out, "| %.2f | %.2f | %.1f |\n", average(own, func(l *line) float64 { return l.MaxOverMean }),
		average(own, func(l *line) float64 { return float64(l.PrefillTokens) / float64(l.UniqueTokens) }),
		average(own, func(l *line) float64 { return l.JoinSeconds }))
}

func average(ls []line, of func(*line) float64) float64 {
	sum := 0.0
	for i := range ls {
		sum += of(&ls[i])
	}
	return sum / float64(len(ls))
}

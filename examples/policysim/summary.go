package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// reference is the policy that a summary compares the others with.
const reference = "kvatlas"

// cell is one scenario at one load, with the results of each policy over seeds.
type cell struct {
	scenario string
	load     float64
	policies map[string][]line  // one router
	many     []line             // the reference with several routers
	telling  map[float64][]line // which tell each other, by the lag in ms
}

// readLines reads JSON lines of earlier runs.
func readLines(files string) ([]line, error) {
	var lines []line
	for name := range strings.SplitSeq(files, ",") {
		in, err := open(name)
		if err != nil {
			return nil, err
		}
		scan := bufio.NewScanner(in)
		for n := 1; scan.Scan(); n++ {
			var l line
			if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
				in.Close()
				return nil, fmt.Errorf("%s line %d: %w", name, n, err)
			}
			lines = append(lines, l)
		}
		if err := cmp.Or(scan.Err(), in.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return lines, nil
}

// summarize prints, for each scenario and load, the reference beside the best of
// the other policies, averaged over seeds, and then each scenario's sum over loads
// beside the one other policy that did best over all of them.
func summarize(lines []line, out io.Writer) {
	var cells []*cell
	lags := map[float64]bool{}
	for _, l := range lines {
		i := slices.IndexFunc(cells, func(c *cell) bool { return c.scenario == l.Scenario && c.load == l.Load })
		if i < 0 {
			i = len(cells)
			cells = append(cells, &cell{scenario: l.Scenario, load: l.Load, policies: map[string][]line{}, telling: map[float64][]line{}})
		}
		c := cells[i]
		switch {
		case l.Routers <= 1:
			c.policies[l.Policy] = append(c.policies[l.Policy], l)
		case l.Policy == reference && l.PeerLag > 0:
			lags[l.PeerLag] = true
			c.telling[l.PeerLag] = append(c.telling[l.PeerLag], l)
		case l.Policy == reference:
			c.many = append(c.many, l)
		}
	}
	slices.SortStableFunc(cells, func(a, b *cell) int {
		return cmp.Or(cmp.Compare(a.scenario, b.scenario), cmp.Compare(a.load, b.load))
	})
	fmt.Fprint(out, "| scenario | load | kvatlas goodput/s (good) | best other | its goodput/s | ratio | second | ratio | TTFT p50 / p99 ms | its | max/mean load | prefill / unique | join s | many routers / one |")
	columns := slices.Sorted(maps.Keys(lags))
	for _, lag := range columns {
		fmt.Fprintf(out, " telling, %g ms / one |", lag)
	}
	fmt.Fprintln(out, "\n|"+strings.Repeat("---|", 14+len(columns)))
	for _, c := range cells {
		c.print(columns, out)
	}
	fmt.Fprintln(out, "\n| scenario, all loads | ratio to the best single policy | which | second | which |")
	fmt.Fprintln(out, "|---|---|---|---|---|")
	for i := 0; i < len(cells); {
		n := i + 1
		for n < len(cells) && cells[n].scenario == cells[i].scenario {
			n++
		}
		printTotal(cells[i:n], out)
		i = n
	}
}

func goodput(l *line) float64 { return l.Goodput }

// others returns the names of the other policies, the one with the highest sum
// of goodputs over the cells first, and the sums.
func others(cells []*cell) (names []string, sums map[string]float64) {
	sums = map[string]float64{}
	for _, c := range cells {
		for name, ls := range c.policies {
			sums[name] += average(ls, goodput)
		}
	}
	for _, name := range sortedKeys(sums) {
		if name != reference {
			names = append(names, name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(sums[b], sums[a]) })
	return names, sums
}

func printTotal(cells []*cell, out io.Writer) {
	names, sums := others(cells)
	if own := sums[reference]; own > 0 && len(names) > 1 {
		fmt.Fprintf(out, "| %s | %.3f | %s | %.3f | %s |\n", cells[0].scenario, own/sums[names[0]], names[0], own/sums[names[1]], names[1])
	}
}

func (c *cell) print(lags []float64, out io.Writer) {
	own := c.policies[reference]
	if len(own) == 0 {
		return
	}
	names, sums := others([]*cell{c})
	ours := sums[reference]
	fmt.Fprintf(out, "| %s | %g | %.2f (%.3f) ", c.scenario, c.load, ours, average(own, func(l *line) float64 { return l.GoodShare }))
	times := func(ls []line) string {
		return fmt.Sprintf("%.0f / %.0f", average(ls, func(l *line) float64 { return l.TTFT50 }), average(ls, func(l *line) float64 { return l.TTFT99 }))
	}
	if len(names) > 1 {
		first, second := names[0], names[1]
		fmt.Fprintf(out, "| %s | %.2f | %.3f | %s | %.3f | %s | %s ", first, sums[first], ours/sums[first], second, ours/sums[second], times(own), times(c.policies[first]))
	} else {
		fmt.Fprintf(out, "| | | | | | %s | ", times(own))
	}
	fmt.Fprintf(out, "| %.2f | %.2f | %.1f |", average(own, func(l *line) float64 { return l.MaxOverMean }),
		average(own, func(l *line) float64 { return float64(l.PrefillTokens) / float64(l.UniqueTokens) }),
		average(own, func(l *line) float64 { return l.JoinSeconds }))
	ratios := [][]line{c.many}
	for _, lag := range lags {
		ratios = append(ratios, c.telling[lag])
	}
	for _, many := range ratios {
		if len(many) > 0 {
			fmt.Fprintf(out, " %.3f |", average(many, goodput)/ours)
		} else {
			fmt.Fprint(out, " |")
		}
	}
	fmt.Fprintln(out)
}

func average(ls []line, of func(*line) float64) float64 {
	sum := 0.0
	for i := range ls {
		sum += of(&ls[i])
	}
	return sum / float64(len(ls))
}

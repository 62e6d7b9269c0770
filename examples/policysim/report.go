package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/kvatlas/kvatlas/scoring/simulate"
)

// line is a result as it is printed.
type line struct {
	Scenario      string  `json:"scenario"`
	Policy        string  `json:"policy"`
	Seed          uint64  `json:"seed"`
	Load          float64 `json:"load"`
	Goodput       float64 `json:"goodput"` // requests a second that met both objectives
	TTFT50        float64 `json:"ttft_p50_ms"`
	TTFT99        float64 `json:"ttft_p99_ms"`
	HitRate       float64 `json:"hit_rate"`
	MaxOverMean   float64 `json:"load_max_over_mean"`
	PrefillTokens int     `json:"prefill_tokens_computed"`

	UniqueTokens int     `json:"prefill_tokens_unique"`
	GoodShare    float64 `json:"good_share"`
	TTFT95       float64 `json:"ttft_p95_ms"`
	JoinSeconds  float64 `json:"join_s"`
	Routers      int     `json:"routers"`
	PeerLag      float64 `json:"peer_lag_ms"` // of routers that tell each other
	RouterTime   float64 `json:"router_us"`   // wall clock of a decision
}

// play runs the simulations, some at a time, and returns results in the order of
// the jobs.
func play(jobs []job, procs int, progress io.Writer) ([]line, error) {
	results, errs := make([]line, len(jobs)), make([]error, len(jobs))
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	next := make(chan int)
	for range max(1, procs) {
		wg.Go(func() {
			for i := range next {
				results[i], errs[i] = one(&jobs[i])
				mu.Lock()
				done++
				bar(progress, done, len(jobs))
				mu.Unlock()
			}
		})
	}
	for i := range jobs {
		next <- i
	}
	close(next)
	wg.Wait()
	fmt.Fprintln(progress)
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

func one(j *job) (line, error) {
	r, err := simulate.Run(j.config, j.trace)
	if err != nil {
		return line{}, err
	}
	ms := func(s float64) float64 { return math.Round(s*1e5) / 100 }
	round := func(v float64) float64 { return math.Round(v*1e4) / 1e4 }
	return line{j.scenario, j.config.Policy, j.config.Seed, j.load, round(r.Goodput), ms(r.TTFT50), ms(r.TTFT99), round(r.HitRate),
		round(r.LoadMaxOverMean), r.PrefillTokens, r.UniqueTokens, round(float64(r.Good) / float64(r.Requests)), ms(r.TTFT95),
		round(r.JoinSeconds), max(1, j.config.Routers), ms(j.config.PeerLag), math.Round(float64(r.RouterTime.Nanoseconds())/100) / 10}, nil
}

const barWidth = 40

func bar(w io.Writer, done, total int) {
	n := barWidth * done / total
	fmt.Fprintf(w, "\r[%s%s] %d/%d", strings.Repeat("#", n), strings.Repeat(".", barWidth-n), done, total)
}

func printJSON(w io.Writer, lines []line) error {
	out := bufio.NewWriter(w)
	e := json.NewEncoder(out)
	for i := range lines {
		if err := e.Encode(&lines[i]); err != nil {
			return err
		}
	}
	return out.Flush()
}

func printTable(w io.Writer, lines []line) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\tload\tpolicy\tseed\tgoodput/s\tgood\tTTFT p50\tp95\tp99 ms\thit rate\tmax/mean\tprefill tokens\trouter µs\t")
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%g\t%s\t%d\t%.2f\t%.3f\t%.0f\t%.0f\t%.0f\t%.3f\t%.2f\t%d\t%.1f\t\n", l.Scenario, l.Load, l.Policy, l.Seed,
			l.Goodput, l.GoodShare, l.TTFT50, l.TTFT95, l.TTFT99, l.HitRate, l.MaxOverMean, l.PrefillTokens, l.RouterTime)
	}
	return t.Flush()
}

// plot writes one SVG for each scenario: the share of requests that met the
// objectives over the load, a line for each policy, averaged over seeds.
func plot(dir string, lines []line) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	type key struct {
		policy string
		load   float64
	}
	byScenario := map[string]map[key][]float64{}
	for _, l := range lines {
		if l.Routers > 1 {
			l.Policy += fmt.Sprintf(" (%d routers)", l.Routers)
		}
		if l.PeerLag > 0 {
			l.Policy += fmt.Sprintf(" telling, %g ms", l.PeerLag)
		}
		if byScenario[l.Scenario] == nil {
			byScenario[l.Scenario] = map[key][]float64{}
		}
		k := key{l.Policy, l.Load}
		byScenario[l.Scenario][k] = append(byScenario[l.Scenario][k], l.GoodShare)
	}
	for _, name := range sortedKeys(byScenario) {
		curves, loads := map[string]map[float64]float64{}, []float64(nil)
		for k, shares := range byScenario[name] {
			if curves[k.policy] == nil {
				curves[k.policy] = map[float64]float64{}
			}
			sum := 0.0
			for _, s := range shares {
				sum += s
			}
			curves[k.policy][k.load] = sum / float64(len(shares))
			if !slices.Contains(loads, k.load) {
				loads = append(loads, k.load)
			}
		}
		slices.Sort(loads)
		if err := os.WriteFile(filepath.Join(dir, name+".svg"), []byte(draw(name, loads, curves)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

const (
	plotWidth, plotHeight = 420, 300
	plotLeft, plotTop     = 50, 30
)

func draw(title string, loads []float64, curves map[string]map[float64]float64) string {
	var b strings.Builder
	rows := len(curves)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		plotLeft+plotWidth+230, max(plotTop+plotHeight+40, plotTop+16*rows+20))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="18" font-size="14">%s: share of requests within the objectives</text>`+"\n", plotLeft, title)
	low, high := loads[0], loads[len(loads)-1]
	x := func(load float64) float64 {
		if high == low {
			return plotLeft + plotWidth/2
		}
		return plotLeft + plotWidth*(load-low)/(high-low)
	}
	y := func(v float64) float64 { return plotTop + plotHeight*(1-v) }
	for i := range 6 {
		v := float64(i) / 5
		fmt.Fprintf(&b, `<path d="M%d %.1fh%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.1f</text>`+"\n", plotLeft, y(v), plotWidth, plotLeft-6, y(v)+4, v)
	}
	for _, l := range loads {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n", x(l), plotTop+plotHeight+16, l)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">load</text>`+"\n", plotLeft+plotWidth/2, plotTop+plotHeight+32)
	for i, name := range sortedKeys(curves) {
		color, width := fmt.Sprintf("hsl(%d,60%%,45%%)", i*360/rows), 1.2
		if name == "kvatlas" {
			color, width = "black", 3
		}
		var points []string
		for _, l := range loads {
			if v, ok := curves[name][l]; ok {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x(l), y(v)))
			}
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%g"/>`+"\n", strings.Join(points, " "), color, width)
		row := plotTop + 16*i
		fmt.Fprintf(&b, `<path d="M%d %dh20" stroke="%s" stroke-width="%g"/><text x="%d" y="%d">%s</text>`+"\n",
			plotLeft+plotWidth+14, row+6, color, width, plotLeft+plotWidth+40, row+10, name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

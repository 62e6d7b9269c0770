package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// chart is a plot of series over one field of scale runs, as SVG.
type chart struct {
	file, title      string
	scale            string // lines of which run
	x, xName         string
	logX, logY       bool
	series           []series
	width, height    int
	minX, maxX       float64
	minY, maxY       float64
	left, top, right int
}

type series struct {
	name, field   string
	where, equals string // lines whose field where is equals
	factor        float64
}

// plot draws the charts of a file of scale runs into a directory.
func plot(path, dir string) {
	f, err := os.Open(path)
	check(err)
	var lines []map[string]any
	for in := bufio.NewScanner(f); in.Scan(); {
		var l map[string]any
		if json.Unmarshal(in.Bytes(), &l) == nil {
			lines = append(lines, l)
		}
	}
	for _, c := range []chart{
		{file: "growth.svg", title: "radix.Index: 300-block prompts, 8 workers", scale: "growth", x: "blocks", xName: "blocks held", logX: true, logY: true, series: []series{
			{name: "ingest, ns a block", field: "ingest_ns", factor: 1},
			{name: "look-up p50, ns a block", field: "p50_us", factor: 1000.0 / prompt},
			{name: "look-up p99, ns a block", field: "p99_us", factor: 1000.0 / prompt},
			{name: "memory, bytes a block", field: "bytes_per_block", factor: 1}}},
		{file: "workers.svg", title: "radix.Index: a million blocks, 640 shared and 200 own a prompt", scale: "workers", x: "workers", xName: "workers", logX: true, logY: true, series: []series{
			{name: "ingest, ns a block", field: "ingest_ns", factor: 1},
			{name: "look-up p50, us", field: "p50_us", factor: 1},
			{name: "look-up p99, us", field: "p99_us", factor: 1},
			{name: "memory, bytes a block", field: "bytes_per_block", factor: 1}}},
		{file: "soak.svg", title: "radix.Index: memory at half a million blocks held", scale: "soak", x: "stored", xName: "blocks stored and evicted", series: []series{
			{name: "in order, MiB", field: "bytes", where: "order", equals: "ordered", factor: 1.0 / (1 << 20)},
			{name: "at random, MiB", field: "bytes", where: "order", equals: "random", factor: 1.0 / (1 << 20)}}},
	} {
		if svg := c.draw(lines); svg != "" {
			check(os.WriteFile(filepath.Join(dir, c.file), []byte(svg), 0o644))
		}
	}
}

func (c *chart) draw(lines []map[string]any) string {
	c.width, c.height, c.left, c.top, c.right = 760, 400, 60, 40, 200
	points := make([][][2]float64, len(c.series))
	c.minX, c.minY = math.Inf(1), math.Inf(1)
	for i, s := range c.series {
		for _, l := range lines {
			x, ok := l[c.x].(float64)
			y, ok2 := l[s.field].(float64)
			if l["scale"] != c.scale || !ok || !ok2 || s.where != "" && l[s.where] != s.equals {
				continue
			}
			y *= s.factor
			points[i] = append(points[i], [2]float64{x, y})
			c.minX, c.maxX, c.minY, c.maxY = min(c.minX, x), max(c.maxX, x), min(c.minY, y), max(c.maxY, y)
		}
	}
	if c.maxX == 0 {
		return ""
	}
	if c.logY {
		c.minY, c.maxY = math.Pow(10, math.Floor(math.Log10(c.minY))), math.Pow(10, math.Ceil(math.Log10(c.maxY)))
	} else {
		c.minY, c.maxY = 0, c.maxY*1.2
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", c.width, c.height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="20" font-size="14">%s</text>`+"\n", c.left, c.title)
	fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#888"/>`+"\n", c.left, c.top, c.width-c.left-c.right, c.height-c.top-50)
	for _, x := range ticks(c.minX, c.maxX, c.logX) {
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="middle">%s</text>`+"\n", c.px(x), c.height-32, short(x))
	}
	for _, y := range ticks(c.minY, c.maxY, c.logY) {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", c.left, c.py(y), c.width-c.right, c.left-6, c.py(y)+4, short(y))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (c.left+c.width-c.right)/2, c.height-12, c.xName)
	for i, s := range c.series {
		color := []string{"#1f77b4", "#d62728", "#ff9896", "#2ca02c"}[i%4]
		for j, p := range points[i] {
			command := "L"
			if j == 0 {
				command = `<path fill="none" stroke-width="2" stroke="` + color + `" d="M`
			}
			fmt.Fprintf(&b, "%s%.1f %.1f", command, c.px(p[0]), c.py(p[1]))
		}
		y := c.top + 12 + 20*i
		fmt.Fprintf(&b, `"/>`+"\n"+`<path d="M%d %dh16" stroke="%s" stroke-width="2"/><text x="%d" y="%d">%s</text>`+"\n", c.width-c.right+10, y, color, c.width-c.right+30, y+4, s.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// fraction is where a value lies on an axis.
func fraction(v, lo, hi float64, log bool) float64 {
	if log {
		return math.Log(v/lo) / math.Log(hi/lo)
	}
	return (v - lo) / (hi - lo)
}

func (c *chart) px(x float64) float64 {
	return float64(c.left) + fraction(x, c.minX, c.maxX, c.logX)*float64(c.width-c.left-c.right)
}

func (c *chart) py(y float64) float64 {
	return float64(c.height-50) - fraction(y, c.minY, c.maxY, c.logY)*float64(c.height-c.top-50)
}

// ticks are round values of an axis.
func ticks(lo, hi float64, log bool) (at []float64) {
	if log {
		for v := math.Pow(10, math.Ceil(math.Log10(lo)-.01)); v <= hi*1.01; v *= 10 {
			at = append(at, v)
		}
		return at
	}
	step := math.Pow(10, math.Floor(math.Log10(hi-lo)))
	if (hi-lo)/step < 3 {
		step /= 4
	}
	for v := lo; v <= hi*1.001; v += step {
		at = append(at, v)
	}
	return at
}

func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", math.Round(v/1e4)/100)
	case v >= 1e3:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%.3g", v)
}

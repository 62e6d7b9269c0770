package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// figures are what compare prints, where a run has them.
var figures = []struct {
	mode, name string
}{
	{"apply1", "block_ops_per_s"}, {"apply1", "cpu_ns_per_block_op"}, {"apply2", "block_ops_per_s"},
	{"seq", "p50_us"}, {"seq", "p99_us"}, {"seq", "mean_us"}, {"seq", "over"}, {"seq", "under"},
	{"read1", "queries_per_s"}, {"read2", "queries_per_s"},
	{"rw", "p50_us"}, {"rw", "p99_us"}, {"rw", "write_block_ops_per_s"},
	{"mem", "rss_per_unique"}, {"mem", "rss_per_membership"},
}

// compare prints the medians (and ranges) of the runs in a file of JSON lines as
// a table, one column a backend, and each backend's ratio to the first.
func compare(path string) {
	f, err := os.Open(path)
	check(err)
	type key struct {
		backend, mode string
		workers       int
		name          string
	}
	runs := map[key][]float64{}
	var backends []string
	var workers []int
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r map[string]any
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue
		}
		backend, _ := r["backend"].(string)
		mode, _ := r["mode"].(string)
		n, _ := r["workers"].(float64)
		if !slices.Contains(backends, backend) {
			backends = append(backends, backend)
		}
		if !slices.Contains(workers, int(n)) {
			workers = append(workers, int(n))
		}
		for name, v := range r {
			if x, ok := v.(float64); ok {
				k := key{backend, mode, int(n), name}
				runs[k] = append(runs[k], x)
			}
		}
	}
	check(lines.Err())
	slices.Sort(workers)
	fmt.Printf("| workers | mode | figure | %s |\n|%s\n", strings.Join(backends, " | "), strings.Repeat("---|", len(backends)+3))
	for _, w := range workers {
		for _, f := range figures {
			var cells []string
			first := 0.0
			for i, b := range backends {
				v := runs[key{b, f.mode, w, f.name}]
				if len(v) == 0 {
					cells = append(cells, "")
					continue
				}
				slices.Sort(v)
				m := v[len(v)/2]
				cell := fmt.Sprintf("%.4g [%.4g .. %.4g]", m, v[0], v[len(v)-1])
				if i == 0 {
					first = m
				} else if first > 0 {
					cell += fmt.Sprintf(" %.2fx", m/first)
				}
				cells = append(cells, cell)
			}
			if strings.Join(cells, "") != "" {
				fmt.Printf("| %d | %s | %s | %s |\n", w, f.mode, f.name, strings.Join(cells, " | "))
			}
		}
	}
}

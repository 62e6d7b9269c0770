// Command policysim plays generated loads and request traces against modelled
// engines and every policy of package scoring, before traffic does.
//
//	go run ./examples/policysim                          a table over all policies and scenarios
//	go run ./examples/policysim -scenario hotspot -json  one JSON object a line
//	go run ./examples/policysim -trace my.jsonl -block 16 -policies kvatlas,llm-d
//	go run ./examples/policysim -vllm-log server.log -block 16 > my.jsonl
//	go run ./examples/policysim -config mine.json -svg plots
//
// A trace is JSON lines as of Mooncake's: timestamp (ms), input_length,
// output_length, hash_ids (a number for each block of -block tokens), optionally
// session; see simulate.ReadTrace. A config file is a JSON object with the names
// of the flags.
package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kvatlas/kvatlas/scoring/simulate"
)

// options are the flags.
type options struct {
	scenario, policies, seeds, loads      string
	traces, trace, vllmLog, config, svg   string
	summary                               string
	joins, leaves, engine                 string
	block, limit, workers, routers, procs int
	autoscale                             int
	ttft, tpot, noise, peerLag, spread    float64
	json, quiet                           bool
}

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "policysim:", err)
		}
		os.Exit(1)
	}
}

func run(args []string, out, progress io.Writer) error {
	var o options
	fs := flag.NewFlagSet("policysim", flag.ContinueOnError)
	fs.SetOutput(progress)
	fs.StringVar(&o.scenario, "scenario", "all", "scenarios, separated by commas: "+strings.Join(scenarioNames(), ", "))
	fs.StringVar(&o.policies, "policies", "all", "policies, separated by commas: "+strings.Join(simulate.Policies(), ", "))
	fs.StringVar(&o.seeds, "seeds", "1", "seeds, separated by commas")
	fs.StringVar(&o.loads, "loads", "", "load factors, separated by commas; empty takes each scenario's own")
	fs.StringVar(&o.traces, "traces", "benchmarks/policy/traces", "folder with the Mooncake traces")
	fs.StringVar(&o.trace, "trace", "", "a trace of your own instead of scenarios (.gz too)")
	fs.StringVar(&o.vllmLog, "vllm-log", "", "convert a log of vLLM (--enable-log-requests, VLLM_LOGGING_LEVEL=DEBUG) to a trace on the output, and end")
	fs.StringVar(&o.config, "config", "", "JSON file with the names of these flags; flags win")
	fs.StringVar(&o.summary, "summary", "", "summarize JSON lines of earlier runs (files separated by commas) as tables, with -svg as plots too, and end")
	fs.StringVar(&o.svg, "svg", "", "folder for plots")
	fs.IntVar(&o.block, "block", 512, "tokens in a block of -trace or -vllm-log")
	fs.IntVar(&o.limit, "limit", 3000, "requests of a trace to play; 0 plays all")
	fs.Float64Var(&o.spread, "spread", 0, "seconds over which requests of one timestamp of a trace are spread, evenly, where it was rounded")
	fs.IntVar(&o.workers, "workers", 8, "workers")
	fs.IntVar(&o.routers, "routers", 1, "router replicas")
	fs.Float64Var(&o.peerLag, "peer-lag", 0, "seconds until a router replica learns what the others sent; 0 for replicas that share nothing")
	fs.StringVar(&o.joins, "joins", "", "seconds at which one more worker joins, separated by commas")
	fs.StringVar(&o.leaves, "leaves", "", "seconds at which the oldest worker is drained, separated by commas")
	fs.IntVar(&o.autoscale, "autoscale", 0, "workers at most, of a fleet that follows the load; 0 for a fixed one")
	fs.StringVar(&o.engine, "engine", "", "JSON file with fields of simulate.Engine that differ from Llama-3.1-8B on an H100")
	fs.Float64Var(&o.ttft, "ttft", 3, "objective in seconds to the first token")
	fs.Float64Var(&o.tpot, "tpot", 0.2, "objective in seconds for each further token")
	fs.Float64Var(&o.noise, "noise", 0.1, "part by which speeds, gaps and lengths vary at random")
	fs.IntVar(&o.procs, "procs", 2, "simulations at a time")
	fs.BoolVar(&o.json, "json", false, "print one JSON object a line instead of a table")
	fs.BoolVar(&o.quiet, "quiet", false, "no progress")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unknown argument %q; options begin with a dash", fs.Arg(0))
	}
	if o.config != "" {
		if err := readConfig(fs, o.config); err != nil {
			return err
		}
	}
	if o.summary != "" {
		lines, err := readLines(o.summary)
		if err != nil {
			return err
		}
		summarize(lines, out)
		if o.svg == "" {
			return nil
		}
		return plot(o.svg, lines)
	}
	if o.vllmLog != "" {
		return convert(&o, out)
	}
	jobs, err := plan(&o)
	if err != nil {
		return err
	}
	if o.quiet {
		progress = io.Discard
	}
	results, err := play(jobs, o.procs, progress)
	if err != nil {
		return err
	}
	if o.svg != "" {
		if err := plot(o.svg, results); err != nil {
			return err
		}
	}
	if o.json {
		return printJSON(out, results)
	}
	return printTable(out, results)
}

// readConfig sets the flags that were not given.
func readConfig(fs *flag.FlagSet, name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var values map[string]any
	if err := json.Unmarshal(data, &values); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for key, v := range values {
		if given[key] {
			continue
		}
		if err := fs.Set(key, fmt.Sprint(v)); err != nil {
			return fmt.Errorf("%s: %q: %w", name, key, err)
		}
	}
	return nil
}

func convert(o *options, out io.Writer) error {
	in, err := open(o.vllmLog)
	if err != nil {
		return err
	}
	defer in.Close()
	t, err := simulate.ConvertVLLMLog(in, o.block)
	if err != nil {
		return err
	}
	return simulate.WriteTrace(out, t)
}

// open opens a file, unpacking .gz.
func open(name string) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if err != nil || filepath.Ext(name) != ".gz" {
		return f, err
	}
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{z, f}, nil
}

// mooncake are the recorded scenarios and their loads for eight workers.
var mooncake = map[string][]float64{"conversation": {2, 2.5, 3, 3.5}, "synthetic": {2, 2.5, 3, 3.5}}

func scenarioNames() []string {
	var names []string
	for _, s := range simulate.Scenarios() {
		names = append(names, s.Name)
	}
	return append(names, "conversation", "synthetic")
}

// job is one simulation to run.
type job struct {
	scenario string
	load     float64
	config   simulate.Config
	trace    *simulate.Trace
}

// plan lists the simulations.
func plan(o *options) ([]job, error) {
	policies := simulate.Policies()
	if o.policies != "all" {
		policies = strings.Split(o.policies, ",")
	}
	seeds, err := numbers(o.seeds)
	if err != nil {
		return nil, fmt.Errorf("-seeds: %w", err)
	}
	own, err := numbers(o.loads)
	if err != nil {
		return nil, fmt.Errorf("-loads: %w", err)
	}
	base, err := baseConfig(o)
	if err != nil {
		return nil, err
	}
	names := scenarioNames()
	if o.trace != "" {
		names = []string{o.trace}
	} else if o.scenario != "all" && o.scenario != "" {
		names = strings.Split(o.scenario, ",")
	}
	var jobs []job
	for _, name := range names {
		s, err := scenario(o, name)
		if err != nil {
			return nil, err
		}
		loads := s.Loads
		if len(own) > 0 {
			loads = own
		}
		for _, load := range loads {
			for _, seed := range seeds {
				trace := s.Make(uint64(seed))
				for _, p := range policies {
					c := base
					c.Policy, c.Seed, c.Load = p, uint64(seed), load
					if s.Configure != nil {
						s.Configure(&c)
					}
					jobs = append(jobs, job{s.Name, load, c, trace})
				}
			}
		}
	}
	return jobs, nil
}

// baseConfig is what all simulations have in common.
func baseConfig(o *options) (c simulate.Config, err error) {
	c = simulate.Config{Workers: o.workers, Routers: o.routers, PeerLag: o.peerLag, TTFT: o.ttft, TPOT: o.tpot, Noise: o.noise,
		Autoscale: simulate.Autoscale{Max: o.autoscale}, MeasureRouter: true}
	if o.noise == 0 {
		c.Noise = -1 // the zero value is a default
	}
	if c.Joins, err = numbers(o.joins); err != nil {
		return c, fmt.Errorf("-joins: %w", err)
	}
	if c.Leaves, err = numbers(o.leaves); err != nil {
		return c, fmt.Errorf("-leaves: %w", err)
	}
	if o.engine == "" {
		return c, nil
	}
	in, err := open(o.engine)
	if err != nil {
		return c, err
	}
	defer in.Close()
	c.Engine = simulate.Llama8BOnH100()
	d := json.NewDecoder(in)
	d.DisallowUnknownFields()
	if err := d.Decode(&c.Engine); err != nil {
		return c, fmt.Errorf("%s: %w", o.engine, err)
	}
	return c, nil
}

// scenario finds a generated or recorded scenario, or reads a trace.
func scenario(o *options, name string) (simulate.Scenario, error) {
	loads, recorded := mooncake[name]
	file := filepath.Join(o.traces, "mooncake_"+name+"_trace.jsonl.gz")
	block := 512
	if o.trace != "" {
		file, block, loads = o.trace, o.block, []float64{1}
		name = strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".gz"), ".jsonl")
	} else if !recorded {
		return simulate.FindScenario(name)
	}
	in, err := open(file)
	if err != nil {
		return simulate.Scenario{}, err
	}
	defer in.Close()
	t, err := simulate.ReadTrace(in, block, o.limit)
	if err != nil {
		return simulate.Scenario{}, fmt.Errorf("%s: %w", file, err)
	}
	if o.spread > 0 {
		name += "-spread"
		spread(t.Arrivals, o.spread)
	}
	return simulate.Scenario{Name: name, Loads: loads, Make: func(uint64) *simulate.Trace { return t }}, nil
}

// spread moves requests of the same time apart, in their order.
func spread(arrivals []simulate.Arrival, over float64) {
	for len(arrivals) > 0 {
		n, seconds := 1, over
		for n < len(arrivals) && arrivals[n].At == arrivals[0].At {
			n++
		}
		if n < len(arrivals) {
			seconds = min(over, arrivals[n].At-arrivals[0].At) // never past the next
		}
		for i := range n {
			arrivals[i].At += seconds * float64(i) / float64(n)
		}
		arrivals = arrivals[n:]
	}
}

func numbers(list string) ([]float64, error) {
	var out []float64
	for s := range strings.SplitSeq(list, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || !(v > 0) {
			return nil, fmt.Errorf("%q is not a positive number", s)
		}
		out = append(out, v)
	}
	return out, nil
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

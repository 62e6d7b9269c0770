package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// prom is a running Prometheus that scrapes the example.
type prom struct {
	t       *testing.T
	address string
}

// startPrometheus starts the real one. Where it is not installed the test is
// skipped, except in CI.
func startPrometheus(t *testing.T, target string, args ...string) *prom {
	t.Helper()
	if _, err := exec.LookPath("prometheus"); err != nil && os.Getenv("CI") == "" {
		t.Skip("needs prometheus: make deps, or Debian's package")
	}
	rules, err := filepath.Abs("../alerts/kvatlas.rules.yml")
	require.NoError(t, err)
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\n"+
		"scrape_configs:\n- {job_name: kvatlas, static_configs: [{targets: [%q]}]}\n", rules, target)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644))
	l := listen(t)
	p := &prom{t, l.Addr().String()}
	l.Close() // for Prometheus, which does not tell a port it chose
	cmd := exec.Command("prometheus", append(args, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+p.address, "--log.level=warn")...)
	var log strings.Builder
	cmd.Stderr, cmd.Stdout = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	require.Eventually(t, func() bool { return p.get("/-/ready", nil, nil) == nil }, time.Minute, 100*time.Millisecond)
	return p
}

// get asks the API and decodes the data of its answer.
func (p *prom) get(path string, query url.Values, data any) error {
	resp, err := http.Get("http://" + p.address + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || data == nil && resp.StatusCode == http.StatusOK {
		return err
	}
	answer := struct {
		Status, Error string
		Warnings      []string
		Data          any
	}{Data: data}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	if answer.Status != "success" || len(answer.Warnings) > 0 {
		return fmt.Errorf("%s: %s %v", answer.Status, answer.Error, answer.Warnings)
	}
	return nil
}

// series evaluates an expression over the last seconds, as a graph does.
func (p *prom) series(expr string) (int, error) {
	now := time.Now()
	var data struct{ Result []any }
	err := p.get("/api/v1/query_range", url.Values{"query": {expr}, "step": {"1"},
		"start": {fmt.Sprint(now.Add(-20 * time.Second).Unix())}, "end": {fmt.Sprint(now.Unix())}}, &data)
	return len(data.Result), err
}

// dashboard is what of a Grafana dashboard asks for data.
type dashboard struct {
	UID, Title string
	Panels     []struct {
		Title       string
		Targets     []struct{ Expr, LegendFormat string }
		FieldConfig struct {
			Defaults struct {
				Unit   string
				Min    *float64
				Custom struct{ Stacking struct{ Mode string } }
			}
		}
	}
	Templating struct {
		List []struct {
			Type, Name string
			Query      json.RawMessage
		}
	}
}

func dashboards(t *testing.T) (all []dashboard) {
	files, err := filepath.Glob("../dashboards/*.json")
	require.NoError(t, err)
	require.Len(t, files, 4)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var d dashboard
		require.NoError(t, json.Unmarshal(text, &d))
		require.NotEmpty(t, d.Panels)
		all = append(all, d)
	}
	return all
}

// filled puts values in place of Grafana's variables.
func filled(expr, interval string) string {
	return strings.NewReplacer("$fleet", ".*", "$worker", ".*", "$__rate_interval", interval).Replace(expr)
}

// noData are queries for which the example has nothing to show: its events are sound, its
// index has room, and it begins without a snapshot.
var noData = regexp.MustCompile(`kvatlas_malformed_events_total|kvatlas_worker_limited|kvatlas_restored_blocks_total`)

// watch starts the example in trouble and a Prometheus that scrapes it.
func watch(t *testing.T, o options, args ...string) *prom {
	l := listen(t)
	o.data, o.trouble = "../../testdata", true
	f, err := newFleet(o, l)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return startPrometheus(t, l.Addr().String(), args...)
}

// TestPrometheus: a real Prometheus scrapes the example and evaluates every query of
// every dashboard, and every alert.
func TestPrometheus(t *testing.T) {
	p := watch(t, options{pace: 50 * time.Millisecond, silent: 2 * time.Second})
	queries := 0
	for _, d := range dashboards(t) {
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				expr, deadline := filled(target.Expr, "10s"), time.Now().Add(2*time.Minute)
				for {
					n, err := p.series(expr)
					require.NoError(t, err, "%s, %s: %s", d.UID, panel.Title, expr)
					if n > 0 || noData.MatchString(expr) {
						break
					}
					require.True(t, time.Now().Before(deadline), "no data: %s, %s: %s", d.UID, panel.Title, expr)
					time.Sleep(200 * time.Millisecond)
				}
				queries++
			}
		}
		for _, v := range d.Templating.List {
			if v.Type == "query" {
				m := regexp.MustCompile(`label_values\((.*), (\w+)\)`).FindStringSubmatch(filled(unquoted(t, v.Query), ""))
				require.NotNil(t, m, "%s", v.Query)
				var values []string
				require.NoError(t, p.get("/api/v1/label/"+m[2]+"/values", url.Values{"match[]": {m[1]}}, &values))
				require.NotEmpty(t, values, "%s", v.Query)
			}
		}
	}
	t.Logf("%d queries of dashboards", queries)
	require.Greater(t, queries, 50)
	p.rules()
}

func unquoted(t *testing.T, query json.RawMessage) string {
	var q struct{ Query string }
	require.NoError(t, json.Unmarshal(query, &q))
	return q.Query
}

// rules checks that every alert is evaluated without error, and that those of the
// example's troubles are raised.
func (p *prom) rules() {
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError, State string }
		}
	}
	states := map[string]string{}
	require.Eventually(p.t, func() bool {
		require.NoError(p.t, p.get("/api/v1/rules", nil, &data))
		for _, r := range data.Groups[0].Rules {
			if states[r.Name] = r.State; r.Health == "unknown" {
				return false
			}
			require.Equal(p.t, "ok", r.Health, "%s: %s", r.Name, r.LastError)
		}
		return states["KvatlasBatchesLost"] == "firing" && states["KvatlasSilentPublisher"] != "inactive"
	}, time.Minute, 200*time.Millisecond, "%v", states)
	p.t.Logf("%d alerts: %v", len(states), states)
	require.Len(p.t, states, 17)
	require.NotEqual(p.t, "firing", states["KvatlasStreamDown"])
	require.NotEqual(p.t, "firing", states["KvatlasWorkerMisdescribed"])
}

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	screenshots = flag.String("screenshots", "", "folder to write pictures of the dashboards to; needs chromium")
	watchFor    = flag.Duration("watch", 4*time.Minute, "how long to watch the example before the pictures are taken")
)

// warmUp is left out of the pictures: rates have nothing to go by at first.
const warmUp = 25 * time.Second

// TestScreenshots is no test: it takes the pictures of docs/README.md. They show the
// queries of the dashboards in Prometheus's own graphs.
//
//	go test ./example -run Screenshots -screenshots ../docs -timeout 20m
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("takes pictures on demand only: -screenshots DIR")
	}
	consoles := t.TempDir()
	all := dashboards(t)
	p := watch(t, options{pace: 200 * time.Millisecond, silent: 10 * time.Second}, "--web.console.templates="+consoles)
	time.Sleep(*watchFor + warmUp)
	end := time.Now()
	for _, d := range all {
		require.NoError(t, os.WriteFile(filepath.Join(consoles, d.UID+".html"), []byte(console(d, end)), 0o644))
	}
	for _, d := range all {
		file := filepath.Join(*screenshots, strings.TrimPrefix(d.UID, "kvatlas-")+".png")
		out, err := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1",
			fmt.Sprintf("--window-size=1200,%d", 60+218*((len(d.Panels)+2)/3)), "--virtual-time-budget=8000", "--screenshot="+file,
			"http://"+p.address+"/consoles/"+d.UID+".html").CombinedOutput()
		require.NoError(t, err, string(out))
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Less(t, info.Size(), int64(200<<10), file)
	}
}

const consoleHead = `<!doctype html><html><head>
<link rel="stylesheet" href="/classic/static/rickshaw/rickshaw.min.css">
<link rel="stylesheet" href="/classic/static/css/prom_console.css">
<script src="/classic/static/d3/d3.min.js"></script>
<script src="/classic/static/vendor/rickshaw/vendor/d3.layout.min.js"></script>
<script src="/classic/static/rickshaw/rickshaw.min.js"></script>
<script src="/classic/static/jquery/jquery.min.js"></script>
<script>var PATH_PREFIX = "";</script>
<script src="/classic/static/js/prom_console.js"></script>
<script>
function unit(v, of) { // as Grafana would write it
  if (!v) return '0';
  const n = x => String(+x.toPrecision(3));
  switch (of) {
  case 'percentunit': return n(100 * v) + ' %';
  case 's': return v < 1e-3 ? n(v * 1e6) + ' µs' : v < 1 ? n(v * 1e3) + ' ms' : n(v) + ' s';
  case 'bytes': return v < 1e6 ? n(v / 1e3) + ' kB' : n(v / 1e6) + ' MB';
  case 'cps': case 'reqps': case 'eps': case 'ops': return n(v) + '/s';
  }
  return n(v);
}
</script>
<style>
body { font: 13px sans-serif; margin: 12px; } h1 { font-size: 18px; margin: 0 0 8px; }
.grid { display: grid; grid-template-columns: repeat(3, 1fr); gap: 8px; }
.panel { border: 1px solid #ccc; height: 200px; overflow: hidden; padding: 4px 6px; } .panel b { font-size: 13px; }
.legend, .rickshaw_legend { font-size: 11px !important; }
.rickshaw_graph .x_tick .title { bottom: -15px !important; opacity: .8 !important; } .rickshaw_legend { margin-top: 16px; }
</style></head><body>
`

// console is a Prometheus console page with the panels of a dashboard, up to a time.
func console(d dashboard, end time.Time) string {
	var page strings.Builder
	page.WriteString(consoleHead)
	fmt.Fprintf(&page, "<h1>%s</h1><div class=grid>\n", html.EscapeString(d.Title))
	for i, panel := range d.Panels {
		var exprs, names []string
		for _, target := range panel.Targets {
			exprs = append(exprs, filled(target.Expr, "20s"))
			names = append(names, regexp.MustCompile(`{{(\w+)}}`).ReplaceAllString(target.LegendFormat, "[[ $1 ]]"))
		}
		renderer := "line"
		if panel.FieldConfig.Defaults.Custom.Stacking.Mode == "normal" {
			renderer = "area"
		}
		graph := map[string]any{"expr": exprs, "name": names, "renderer": renderer, "height": 120, "width": 300,
			"duration": watchFor.Seconds(), "endTime": end.Unix(), "yAxisTicks": 4, "xTitle": ""}
		if least := panel.FieldConfig.Defaults.Min; least != nil {
			graph["min"] = *least
		}
		options, _ := json.Marshal(graph)
		fmt.Fprintf(&page, "<div class=panel><b>%s</b><div id=p%d></div></div>\n<script>(o => { o.node = document.getElementById('p%d'); "+
			"o.yAxisFormatter = o.yHoverFormatter = v => unit(v, %q); new PromConsole.Graph(o) })(%s)</script>\n",
			html.EscapeString(panel.Title), i, i, panel.FieldConfig.Defaults.Unit, options)
	}
	page.WriteString("</div></body></html>\n")
	return page.String()
}

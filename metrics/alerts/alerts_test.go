// Package alerts checks the alerting rules in this folder with promtool.
package alerts

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// promtool runs Prometheus's own checker. Where it is not installed the test is
// skipped, except in CI.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil && os.Getenv("CI") == "" {
		t.Skip("needs promtool: make deps, or Debian's package prometheus")
	}
	out, err := exec.Command("promtool", args...).CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestRules(t *testing.T) {
	promtool(t, "check", "rules", "kvatlas.rules.yml")
	promtool(t, "test", "rules", "kvatlas.rules_test.yml")
}

// TestEveryAlertIsTested: each has a case that fires and one that does not.
func TestEveryAlertIsTested(t *testing.T) {
	rules, err := os.ReadFile("kvatlas.rules.yml")
	require.NoError(t, err)
	tests, err := os.ReadFile("kvatlas.rules_test.yml")
	require.NoError(t, err)
	names := regexp.MustCompile(`- alert: (\w+)`).FindAllSubmatch(rules, -1)
	require.NotEmpty(t, names)
	for _, n := range names {
		name := string(n[1])
		require.Regexp(t, `alertname: `+name+`\n        exp_alerts:\n`, string(tests), name)
		require.Regexp(t, `alertname: `+name+`\n        exp_alerts: \[\]`, string(tests), name)
	}
}

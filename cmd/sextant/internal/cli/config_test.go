// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"
)

// explain runs `sextant config explain`.
func explain(args ...string) (string, error) {
	var out bytes.Buffer
	c := Root()
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(append([]string{"config", "explain"}, args...))
	err := c.Execute()
	return out.String(), err
}

func TestExplainSettings(t *testing.T) {
	for _, tt := range []struct {
		args  []string
		want  string
		lines int
	}{
		{args: []string{"maxPods"}, want: "maxPods  honoured  -                -", lines: 2},
		{args: []string{"runOnce"}, want: "refused", lines: 2},
		{args: []string{"authentication.webhook"}, want: "authentication.webhook.cacheTTL", lines: 3},
		{args: []string{"--", "--max-pods"}, want: "--max-pods  honoured  -                110", lines: 2},
		{args: []string{"GracefulNodeShutdown", "maxPods"}, want: "GracefulNodeShutdown", lines: 3},
		{args: nil, want: "enableServer", lines: 100},
	} {
		out, err := explain(tt.args...)
		lines := strings.Count(out, "\n")
		if err != nil || !strings.Contains(out, tt.want) || lines < tt.lines || tt.lines < 100 && lines != tt.lines {
			t.Errorf("%q: %v, %d lines, want %q in:\n%s", tt.args, err, lines, tt.want, out)
		}
	}
	if out, err := explain("maxPods", "-o", "json"); err != nil || !strings.Contains(out, `"level": "honoured"`) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestExplainUnknown: a name that is none says so, and what it may have meant.
func TestExplainUnknown(t *testing.T) {
	for name, want := range map[string]string{
		"max-pods": `"max-pods" is no field, flag or feature gate of a kubelet v1.36: there are maxPods, --max-pods`,
		"maxpods":  `there are maxPods, --max-pods`,
		"zzz":      `"zzz" is no field, flag or feature gate of a kubelet v1.36`,
		"":         `"" is no field`,
	} {
		if _, err := explain(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

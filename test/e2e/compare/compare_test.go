// SPDX-License-Identifier: Apache-2.0

package compare_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/test/e2e/compare"
)

func TestNormalizer(t *testing.T) {
	n := compare.NewNormalizer(map[string]string{
		"node-7": "NODE", "/tmp/lab/n7": "DIR", "/tmp/lab": "LAB", "sxt12-1": "CGROUP", "10.131.5.2": "NODEIP", "41235": "PORT",
	})
	for in, want := range map[string]string{
		"plain text of 3 words, 40s, 10 MiB":                               "plain text of 3 words, 40s, 10 MiB",
		"static-web-node-7":                                                "static-web-NODE",
		"/tmp/lab/n7/kubelet/pods, /tmp/lab/rt1":                           "DIR/kubelet/pods, LAB/rt1",
		"/sxt12-1/kubepods/besteffort":                                     "/CGROUP/kubepods/besteffort",
		"http://10.131.5.2:41235/healthz":                                  "http://NODEIP:PORT/healthz",
		"2026-01-02T03:04:05Z and 2026-01-02T03:04:05.678+01:00":           "TIME and TIME",
		"crash_ns(6ba7b810-9dad-11d1-80b4-00c04fd430c8)":                   "crash_ns(UID)",
		"pod6ba7b810_9dad_11d1_80b4_00c04fd430c8.slice":                    "podUID.slice",
		"containerd://" + strings.Repeat("0a", 32):                         "containerd://ID",
		"containerd://ab41235c" + strings.Repeat("0a", 28):                 "containerd://ID",
		"hello@sha256:" + strings.Repeat("0a", 32):                         "hello@sha256:" + strings.Repeat("0a", 32),
		"pod" + strings.Repeat("0a", 16):                                   "podUID",
		"/pod/" + strings.Repeat("0a", 16):                                 "/pod/UID",
		"kube-api-access-x7k2p":                                            "kube-api-access-RANDOM",
		"pulled in 12ms (1.5s including waiting), 1m2.3s, 3µs":             "pulled in DURATION (DURATION including waiting), DURATION, DURATION",
		"back-off 1m20s, timeout 5m0s":                                     "back-off 1m20s, timeout 5m0s",
		"dial tcp 10.88.0.3:8080 from 10.88.0.1:50214":                     "dial tcp IP:8080 from IP:PORT",
		"127.0.0.1:9091 and version 1.36.3":                                "127.0.0.1:9091 and version 1.36.3",
		"veth5f2a1b0c and eth0":                                            "VETH and eth0",
		"registry.k8s.io/pause:3.10.2":                                     "registry.k8s.io/pause:3.10.2",
		"a Deadline is not 1234567890123456 even if it is as long as a id": "a Deadline is not 1234567890123456 even if it is as long as a id",
	} {
		if got := n.Text(in); got != want {
			t.Errorf("%q\n became %q\n want   %q", in, got, want)
		}
	}
	if n.Number("41235") != "PORT" || n.Number("141235") != "141235" {
		t.Error("a number is replaced when all of it is a name, and not otherwise")
	}
}

func TestFlattener(t *testing.T) {
	f := compare.Flattener{
		Names: compare.NewNormalizer(map[string]string{"node-7": "NODE", "10250": "PORT"}),
		Drop:  []string{"*metadata.resourceVersion", "list[b]"},
		Kind:  []string{"*Bytes", "at"},
	}
	got, err := f.Facts([]byte(`{
		"metadata": {"name": "node-7", "resourceVersion": "12", "labels": {"host-node-7": "x"}},
		"list": [{"name": "a", "v": true}, {"name": "b", "v": 1}, {"name": "a", "v": null}],
		"items": [{"metadata": {"name": "p"}, "usedBytes": 17}, {"podRef": {"name": "q"}}],
		"keyless": [{"v": 1.5}, {"v": []}],
		"plain": ["x", 2, false], "empty": {}, "at": "now", "port": 10250
	}`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`at = string`,
		`empty = {}`,
		`items[p].metadata.name = "p"`,
		`items[p].usedBytes = number`,
		`items[q].podRef.name = "q"`,
		`keyless[0].v = 1.5`,
		`keyless[1].v = []`,
		`list[a#2].v = null`, `list[a#2].name = "a"`,
		`list[a].name = "a"`, `list[a].v = true`,
		`metadata.labels.host-NODE = "x"`,
		`metadata.name = "NODE"`,
		`plain = ["x", 2, false]`,
		`port = PORT`,
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("facts\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, err := f.Facts([]byte("404 page not found")); err == nil || !strings.Contains(err.Error(), "404 page") {
		t.Errorf("what is no JSON: %v", err)
	}
}

func TestMetrics(t *testing.T) {
	page := []byte(`# HELP a_total Something.
# TYPE a_total counter
a_total{code="200",node="node-7"} 3
a_total{code="500",node="node-7"} 1
# TYPE t_seconds histogram
t_seconds_bucket{le="0.5"} 1
t_seconds_bucket{le="+Inf"} 2
t_seconds_sum 3
t_seconds_count 2
`)
	for name, c := range map[string]struct {
		values *compare.Normalizer
		want   []string
	}{
		"names": {nil, []string{
			"a_total is a counter", "a_total{code,node}",
			"t_seconds has buckets 0.5 +Inf", "t_seconds is a histogram", "t_seconds{}",
		}},
		"values": {compare.NewNormalizer(map[string]string{"node-7": "NODE"}), []string{
			"a_total is a counter", `a_total{code="200",node="NODE"}`, `a_total{code="500",node="NODE"}`,
			"t_seconds has buckets 0.5 +Inf", "t_seconds is a histogram", "t_seconds{}",
		}},
	} {
		got, err := compare.Metrics(page, c.values)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: facts\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
	if _, err := compare.Metrics([]byte("Unauthorized\n"), nil); err == nil {
		t.Error("what is no metrics page gave facts")
	}
}

const table = `
# The runtime counts
# these itself.
- docker_*
-  old{*}

# More.
+ sextant_*
# As it happens.
?+ maybe
`

func TestJudge(t *testing.T) {
	parsed, err := compare.ParseTable(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name               string
		reference, sextant []string
		unlisted, stale    []string
		explained          int
	}{
		{"as listed", []string{"docker_a", "docker_b", "old{x}", "same"}, []string{"same", "sextant_c", "same"}, nil, nil, 4},
		{"what may be", []string{"docker_a", "old{}"}, []string{"maybe", "sextant_c"}, nil, nil, 4},
		{"unlisted", []string{"docker_a", "old{}", "value = 1", "sextant_d"}, []string{"value = 2", "sextant_c"},
			[]string{"- sextant_d", "- value = 1", "+ value = 2"}, nil, 3},
		{"stale", []string{"old{}"}, []string{"sextant_c"}, nil, []string{"- docker_*"}, 2},
	} {
		r := parsed.Judge(compare.Diff(c.reference, c.sextant))
		explained := 0
		for _, found := range r.Explained {
			explained += len(found)
		}
		unlisted, stale := lines(r.Unlisted), lines(r.Stale)
		if !slices.Equal(unlisted, c.unlisted) || !slices.Equal(stale, c.stale) || explained != c.explained {
			t.Errorf("%s: unlisted %q, stale %q, explained %d", c.name, unlisted, stale, explained)
		}
		if r.OK() != (len(c.unlisted)+len(c.stale) == 0) {
			t.Errorf("%s: OK is %v", c.name, r.OK())
		}
		text := r.String()
		for _, want := range append(slices.Concat(c.unlisted, c.stale), "# The runtime counts these itself.") {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, text)
			}
		}
	}
}

func lines[T interface{ String() string }](all []T) []string {
	var text []string
	for _, x := range all {
		text = append(text, x.String())
	}
	return text
}

func TestParseTableRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"- a\n":                      `line 1: "- a" has no reason above it`,
		"#\n- a\n":                   `line 2: "- a" has no reason above it`,
		"# Why.\na\n":                `line 2: "a" is not a sign and a pattern`,
		"# Why.\n~ a\n":              `line 2: "~ a" is not a sign and a pattern`,
		"# Why.\n- a\n+ a\n\n?- a\n": `line 5: "- a" is listed twice`,
	} {
		if _, err := compare.ParseTable(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a*", "ab", true}, {"*", "", true}, {"*b", "ab", true}, {"*b", "ba", false},
		{"a*b*c", "aXbYc", true}, {"a*b*c", "abc", true}, {"a*b*c", "acb", false}, {"a*a", "a", false}, {"{*}", "{x,y}", true},
	} {
		if got := compare.Match(c.pattern, c.text); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.pattern, c.text, got)
		}
	}
}

package main

import "testing"

func TestJudge(t *testing.T) {
	s := bench("", "./x", "X", promise{"a", "fast", "p99-ms", 5}, promise{"b", "few", "GETs", 0}, promise{about: "c", what: "works"})
	const out = "goos: linux\nBenchmarkX-2   \t 1\t99 ns/op\t 0 GETs\t 7.5 p99-ms\nPASS\n"
	want := "| about | promise | bound | measured | met |\n|---|---|---|---|---|\n" +
		"| a | fast | 5 | 7.5 | no |\n| b | few | 0 | 0 | yes |\n| c | works |  | holds | yes |\n"
	if got := table(s.judge(out, true)); got != want {
		t.Errorf("got\n%s", got)
	}
	for name, rows := range map[string][]row{
		"failed":  s.judge(out, false),
		"no test": s.judge("ok  x 0.1s [no tests to run]\n", true),
		"nothing": s.judge("PASS\n", true)[:2],
	} {
		for _, r := range rows {
			if r.met {
				t.Errorf("%s: %s is met", name, r.what)
			}
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

func TestLogQueries(t *testing.T) {
	const undecodable, invalid = `{"message": "Unable to decode query."}`, `{"message": "Invalid request."}`
	r := newRig(t, alwaysAllow)
	r.worker.write("text\n")
	r.worker.end()
	for _, test := range []struct {
		query string
		code  int
		want  string // the request as podworker gets it, or a part of the answer
	}{
		{"", 200, `{"namespace":"ns","pod":"p","container":"c"}`},
		{"previous=true&timestamps=1&tailLines=5&limitBytes=100&sinceSeconds=60", 200,
			`{"namespace":"ns","pod":"p","container":"c","previous":true,"timestamps":true,"sinceSeconds":"60","tailLines":"5","limitBytes":"100"}`},
		{"sinceTime=2026-01-02T03:04:05Z", 200, `{"namespace":"ns","pod":"p","container":"c","sinceTime":"2026-01-02T03:04:05Z"}`},
		{"sinceTime=2026-01-02T05:04:05.5%2B02:00", 200, `{"namespace":"ns","pod":"p","container":"c","sinceTime":"2026-01-02T03:04:05.500Z"}`},
		{"tail=all", 200, `{"namespace":"ns","pod":"p","container":"c"}`},
		{"tail=7", 200, `{"namespace":"ns","pod":"p","container":"c","tailLines":"7"}`},
		{"tail=7&tailLines=3", 200, `{"namespace":"ns","pod":"p","container":"c","tailLines":"7"}`},
		{"tail=all&tailLines=3", 200, `{"namespace":"ns","pod":"p","container":"c"}`},
		{"follow=yes&previous&timestamps=False", 200, `{"namespace":"ns","pod":"p","container":"c","follow":true,"previous":true}`},
		{"follow=0&follow=1", 200, `{"namespace":"ns","pod":"p","container":"c"}`},
		{"tailLines=0", 200, `{"namespace":"ns","pod":"p","container":"c","tailLines":"0"}`},
		{"stream=All", 200, `{"namespace":"ns","pod":"p","container":"c"}`},
		{"stream=All&tailLines=1", 200, `{"namespace":"ns","pod":"p","container":"c","tailLines":"1"}`},
		{"unknown=x&follow=false", 200, `{"namespace":"ns","pod":"p","container":"c"}`},
		{"stream=Stderr", 400, `unable to return the given log stream: "Stderr". Please enable PodLogsQuerySplitStreams feature gate in kubelet`},
		{"tailLines=many", 400, undecodable},
		{"tail=many", 400, undecodable},
		{"sinceSeconds=1s", 400, undecodable},
		{"sinceSeconds=", 400, undecodable},
		{"sinceTime=yesterday", 400, undecodable},
		{"limitBytes=x", 400, undecodable},
		{"limitBytes=9223372036854775808", 400, undecodable},
		{"tailLines=-1", 422, invalid},
		{"limitBytes=0", 422, invalid},
		{"sinceSeconds=0", 422, invalid},
		{"sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z", 422, invalid},
		{"stream=stdout", 422, invalid},
		{"stream=", 422, invalid},
		{"stream=Stdout&tailLines=1", 422, invalid},
	} {
		before := len(r.worker.requests())
		a := r.get("/containerLogs/ns/p/c?" + test.query)
		if test.code != 200 {
			if a.code != test.code || a.body != test.want {
				t.Errorf("%s: %d %q, want %d %q", test.query, a.code, a.body, test.code, test.want)
			}
			continue
		}
		if a.code != 200 || a.body != "text\n" || a.header.Get("Content-Type") != "text/plain" {
			t.Errorf("%s: %d %q %s", test.query, a.code, a.body, a.header.Get("Content-Type"))
		}
		requests := r.worker.requests()
		if len(requests) != before+1 {
			t.Fatalf("%s: %d requests", test.query, len(requests)-before)
		}
		if got := strings.ReplaceAll(protojson.MarshalOptions{}.Format(requests[before]), " ", ""); got != test.want {
			t.Errorf("%s: asked %s, want %s", test.query, got, test.want)
		}
	}
	r.configure(func(c *kubeletconfig.Config) {
		alwaysAllow(c)
		c.Kubelet.FeatureGates = map[string]bool{"PodLogsQuerySplitStreams": true}
	})
	r.Eventually("the gate", func() bool { return r.get("/containerLogs/ns/p/c?stream=Stderr").code == 200 })
}

func TestLogErrors(t *testing.T) {
	r := newRig(t, alwaysAllow)
	for path, want := range map[string]string{
		"/containerLogs/ns/none/c":  "404 pod ns/none not found",
		"/containerLogs/ns/p/other": "400 container other is waiting to start",
		"/containerLogs/ns/p":       "404 404: Page Not Found",
		"/containerLogs/ns/p/c/d":   "404 404: Page Not Found",
		"/containerLogs/":           "404 404: Page Not Found",
	} {
		var code int
		if _, err := fmt.Sscan(want, &code); err != nil {
			t.Fatal(err)
		}
		expect(t, path, r.get(path), code, strings.SplitN(want, " ", 2)[1])
	}
	r.stopWorker()
	if a := r.get("/containerLogs/ns/p/c"); a.code != 503 {
		t.Errorf("without podworker: %d %q", a.code, a.body)
	}
	if a := r.do(who{}, http.MethodPost, "/containerLogs/ns/p/c"); a.code != 405 {
		t.Errorf("another method: %d", a.code)
	}
}

// TestLogsAreStreamed: each line arrives when it is written, and a restart of
// podworker in between loses and doubles none.
func TestLogsAreStreamed(t *testing.T) {
	r := newRig(t, alwaysAllow)
	r.worker.write("one\n")
	resp := r.request(who{}, http.MethodGet, "/containerLogs/ns/p/c?follow=true&limitBytes=19")
	defer resp.Body.Close()
	if len(resp.TransferEncoding) != 1 || resp.TransferEncoding[0] != "chunked" {
		t.Errorf("transfer encoding %v", resp.TransferEncoding)
	}
	lines := bufio.NewReader(resp.Body)
	next := func(want string) {
		t.Helper()
		if line, err := lines.ReadString('\n'); line != want || err != nil {
			t.Fatalf("read %q, %v, want %q", line, err, want)
		}
	}
	next("one\n")
	r.worker.write("two\n")
	next("two\n")
	r.stopWorker()
	r.worker.write("three\n")
	r.startWorker()
	next("three\n")
	r.worker.write("four\nfive\n")
	next("four\n")
	if rest, err := io.ReadAll(lines); string(rest) != "" || err != nil {
		t.Errorf("after the limit: %q, %v", rest, err)
	}
}

// TestASilentLogIsFollowed: a restart of podworker ends no log of which nothing has come yet,
// and what was wanted from then on is wanted from when the caller came.
func TestASilentLogIsFollowed(t *testing.T) {
	r := newRig(t, alwaysAllow)
	for i, test := range []struct {
		query string
		since time.Duration // before the caller came; negative: not asked for
	}{{"&tailLines=3", -1}, {"&tailLines=0", 0}, {"&sinceSeconds=60", time.Minute}} {
		came := time.Now()
		got := make(chan answer, 1)
		go func() { got <- r.do(who{}, http.MethodGet, "/containerLogs/ns/p/c?follow=true"+test.query) }()
		asked := func(n int) func() bool { return func() bool { return len(r.worker.requests()) == n } }
		r.Eventually("it is read", asked(2*i+1))
		read := time.Now()
		r.stopWorker()
		r.startWorker()
		r.Eventually("it is read again", asked(2*i+2))
		r.worker.write("one\n")
		r.worker.end()
		expect(t, "the log"+test.query, <-got, http.StatusOK, "one\n")
		again := r.worker.requests()[2*i+1]
		if since := again.GetSinceTime(); test.since < 0 && since != nil || again.SinceSeconds != nil || test.since == 0 && again.TailLines != nil {
			t.Errorf("%s: asked again for %v", test.query, again)
		} else if at := since.AsTime().Add(test.since); test.since >= 0 && (at.Before(came) || at.After(read)) {
			t.Errorf("%s: asked again for what is since %v, and the caller came at %v", test.query, since.AsTime(), came)
		}
		r.worker.change(func() { r.worker.log, r.worker.ended = "", false })
	}
}

func TestAFollowedLogEnds(t *testing.T) {
	r := newRig(t, alwaysAllow)
	r.worker.write("one\n")
	resp := r.request(who{}, http.MethodGet, "/containerLogs/ns/p/c?follow=true")
	defer resp.Body.Close()
	r.worker.write("two\n")
	r.worker.end()
	if all, err := io.ReadAll(resp.Body); string(all) != "one\ntwo\n" || err != nil {
		t.Errorf("read %q, %v", all, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package manifesturl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sextant-node/sextant/services/config/internal/merge"
)

const podJSON = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"containers":[{"name":"c","image":"i:1"}]}}`

func list(names ...string) string {
	var items []string
	for _, n := range names {
		items = append(items, fmt.Sprintf(podJSON, n))
	}
	return `{"apiVersion":"v1","kind":"PodList","items":[` + strings.Join(items, ",") + `]}`
}

// manifests is a manifest server that can be told what to answer.
type manifests struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	body   string
	cut    bool
	header http.Header
}

func serve(t *testing.T) *manifests {
	m := &manifests{status: http.StatusOK}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.header = r.Header.Clone()
		if m.cut {
			w.Header().Set("Content-Length", "1000000")
		}
		w.WriteHeader(m.status)
		_, _ = w.Write([]byte(m.body)) // the source under test may have gone
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *manifests) say(status int, body string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status, m.body = status, body
}

func names(l merge.Listing) string {
	var all []string
	for _, e := range l.Entries {
		if e.Problem != nil {
			all = append(all, "!"+e.Problem.Field)
		}
		for _, p := range e.Pods {
			all = append(all, p.Name)
		}
	}
	return strings.Join(all, " ")
}

func TestAnswers(t *testing.T) {
	server := serve(t)
	s := New(Config{URL: server.URL, Node: "n1", Header: map[string][]string{"X-Token": {"a", "b"}}, Log: slog.New(slog.DiscardHandler)})
	steps := []struct {
		name    string
		status  int
		body    string
		changed bool
		heard   bool
		pods    string
		err     string
	}{
		{"away at first", 503, "", true, false, "", "503"},
		{"nonsense at first is not heard", 200, "{", true, false, "!", "not usable"},
		{"the same nonsense", 200, "{", false, false, "!", "not usable"},
		{"a pod", 200, fmt.Sprintf(podJSON, "web"), true, true, "web-n1", ""},
		{"unchanged", 200, fmt.Sprintf(podJSON, "web"), false, true, "web-n1", ""},
		{"away keeps", 500, "oops", true, true, "web-n1", "500"},
		{"away still", 500, "oops", false, true, "web-n1", "500"},
		{"back, unchanged", 200, fmt.Sprintf(podJSON, "web"), true, true, "web-n1", ""},
		{"a list", 200, list("web", "db"), true, true, "web-n1 db-n1", ""},
		{"one bad of two refuses the answer", 200, list("web", ""), true, true, "!items[1].metadata.name", "not usable"},
		{"a name twice", 200, list("web", "web"), true, true, "!items[1].metadata.name", "duplicate"},
		{"away with a bad answer before", 500, "", true, true, "!items[1].metadata.name", "500"},
		{"the bad answer again", 200, list("web", "web"), true, true, "!items[1].metadata.name", "not usable"},
		{"no pods", 200, `{"apiVersion":"v1","kind":"PodList","items":[]}`, true, true, "", ""},
		{"empty answer", 200, "", true, true, "", "empty"},
	}
	for _, step := range steps {
		server.say(step.status, step.body)
		data, err := s.get(t.Context())
		changed := s.update(data, err)
		l := s.Listing()
		if changed != step.changed || l.Heard != step.heard || names(l) != step.pods ||
			!strings.Contains(l.Err, step.err) || (step.err == "") != (l.Err == "") {
			t.Errorf("%s: changed %v, listing %q heard %v error %q", step.name, changed, names(l), l.Heard, l.Err)
		}
	}
	if got := server.header.Values("X-Token"); len(got) != 2 {
		t.Errorf("header %v", got)
	}
}

// TestIgnored: what has no effect in an answer is said beside its pods.
func TestIgnored(t *testing.T) {
	const url = "http://user:geheim@127.0.0.1:1/pods"
	s := New(Config{URL: url, Node: "n1", Log: slog.New(slog.DiscardHandler)})
	s.update([]byte(strings.Replace(list("web", "db"), `"spec"`, `"specs":{},"spec"`, 1)), nil)
	l := s.Listing()
	if !l.Heard || l.Err != "" || names(l) != "web-n1 db-n1" {
		t.Fatalf("listing %q heard %v error %q", names(l), l.Heard, l.Err)
	}
	if i := l.Entries[0].Ignored; i == nil || i.Field != "items[0].specs" || strings.Contains(i.Origin+i.Message, "geheim") {
		t.Errorf("ignored %+v", i)
	}
}

func TestLimits(t *testing.T) {
	server := serve(t)
	s := New(Config{URL: server.URL, Node: "n1", Log: slog.New(slog.DiscardHandler)})
	server.say(200, strings.Repeat("x", 10<<20+1))
	if _, err := s.get(t.Context()); err == nil || !strings.Contains(err.Error(), "10 MiB") {
		t.Errorf("too large: %v", err)
	}
	server.say(200, "short")
	server.mu.Lock()
	server.cut = true
	server.mu.Unlock()
	if data, err := s.get(t.Context()); err == nil {
		t.Errorf("half an answer was taken: %q", data)
	}
}

func TestPasswordsStayPrivate(t *testing.T) {
	const url = "http://user:geheim@127.0.0.1:1/pods"
	s := New(Config{URL: url, Node: "n1", Log: slog.New(slog.DiscardHandler)})
	_, err := s.get(t.Context())
	s.update(nil, err)
	s.update([]byte("{"), nil)
	s.update([]byte(fmt.Sprintf(podJSON, "")), nil)
	l := s.Listing()
	if text := fmt.Sprintf("%+v %+v", l, l.Entries[0].Problem); strings.Contains(text, "geheim") {
		t.Error(text)
	}
}

func TestRunAsksEachPeriod(t *testing.T) {
	server := serve(t)
	server.say(200, fmt.Sprintf(podJSON, "web"))
	changed := make(chan struct{}, 100)
	s := New(Config{
		URL: server.URL, Node: "n1", Period: 5 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Changed: func() { changed <- struct{}{} },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	wait := func(want string) {
		t.Helper()
		limit := time.After(time.Minute)
		for names(s.Listing()) != want {
			select {
			case <-changed:
			case <-limit:
				t.Fatalf("listing %+v", s.Listing())
			}
		}
	}
	wait("web-n1")
	server.say(200, list("db"))
	wait("db-n1")
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// FuzzDecode: whatever a URL answers, it is pods or one problem.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(list("web", "db")))
	f.Add([]byte(fmt.Sprintf(podJSON, "web")))
	f.Fuzz(func(t *testing.T, data []byte) {
		e := Decode("http://o", "http://o", "n1", data)
		if e.Problem != nil && (len(e.Pods) > 0 || e.Problem.Message == "") {
			t.Fatalf("%d pods and problem %+v", len(e.Pods), e.Problem)
		}
		seen := map[string]bool{}
		for _, p := range e.Pods {
			if p.UID == "" || seen[p.Namespace+"/"+p.Name] {
				t.Fatalf("pod %s/%s uid %q", p.Namespace, p.Name, p.UID)
			}
			seen[p.Namespace+"/"+p.Name] = true
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package nodelog

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// logs is a log folder, with secrets beside it.
func logs(t *testing.T) (dir string) {
	t.Helper()
	top := t.TempDir()
	dir = filepath.Join(top, "log")
	for _, d := range []string{"pods/ns_p_uid/c", "containers", "web", "svc", "empty"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"log/syslog": "one\ntwo\n", "log/pods/ns_p_uid/c/0.log": "container\n", "log/web/index.html": "<p>", "log/plain": "plain\n",
		"log/dotted.log": "dotted\n", "log/svc/svc.log": "inside\n", "log/<b>": "odd", "secret": "secret", "logs": "secret", "log/%2e%2e": "odd",
	} {
		if err := os.WriteFile(filepath.Join(top, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"containers/absolute.log": filepath.Join(dir, "pods/ns_p_uid/c/0.log"), "containers/relative.log": "../pods/ns_p_uid/c/0.log",
		"out": filepath.Join(top, "secret"), "out-relative": "../secret", "up": "..", "loop": "loop", "dangling": "none", "sibling": filepath.Join(top, "logs"),
		"chain": "out",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// journalctl puts a stand-in for the journal first in the path: it knows
// kubelet.service, and says how it was called.
func journalctl(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "journalctl"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

const journal = `if [ "$1" = --field ]; then echo kubelet.service; echo sshd.service; exit; fi
echo "called $*"
echo "warned" >&2
case "$*" in *--boot*) exit 1;; esac`

func ask(handler http.HandlerFunc, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "http://node/", nil)
	target, query, _ := strings.Cut(path, "?")
	r.URL.Path, r.URL.RawQuery = target, query
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	handler(w, r)
	return w
}

func TestFiles(t *testing.T) {
	s := New(logs(t))
	for path, want := range map[string]string{
		"syslog": "200 one\ntwo\n", "pods/ns_p_uid/c/0.log": "200 container\n",
		"containers/absolute.log": "200 container\n", "containers/relative.log": "200 container\n",
		"empty/": "200 <!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n</pre>\n",
		"web/":   "200 <p>", "empty": "301 ", "web/index.html": "301 ",
		"none": "404 404 page not found\n", "syslog/x": "404 404 page not found\n", "dangling": "404 404 page not found\n", "loop": "404 404 page not found\n",
		"sys\x00log": "404 404 page not found\n", strings.Repeat("x", 5000): "404 404 page not found\n", "%2e%2e/secret": "404 404 page not found\n",
		"out": "403 403 Forbidden\n", "out-relative": "403 403 Forbidden\n", "up/secret": "403 403 Forbidden\n", "up/": "403 403 Forbidden\n",
		"sibling": "403 403 Forbidden\n", "chain": "403 403 Forbidden\n", "pipe": "403 403 Forbidden\n", "syslog?query=kubelet": "200 one\ntwo\n",
		"../secret": "404 404 page not found\n", "../log/syslog": "404 404 page not found\n", "../../../../../etc/passwd": "404 404 page not found\n",
	} {
		w := ask(s.Files, path)
		if got := strings.TrimSpace(http.StatusText(w.Code)); got == "" || want[:3]+" " != codeOf(w) || w.Body.String() != want[4:] {
			t.Errorf("%.40q: %s%q, want %q", path, codeOf(w), w.Body, want)
		}
	}
	listing := ask(s.Files, "").Body.String()
	for _, want := range []string{`<a href="syslog">syslog</a>`, `<a href="pods/">pods/</a>`, `<a href="%3Cb%3E">&lt;b&gt;</a>`, `<a href="%252e%252e">%2e%2e</a>`} {
		if !strings.Contains(listing, want) {
			t.Errorf("listing without %s:\n%s", want, listing)
		}
	}
	if w := ask(s.Files, "syslog", "Range: bytes=4-6"); w.Code != 206 || w.Body.String() != "two" {
		t.Errorf("a range: %d %q", w.Code, w.Body)
	}
}

func codeOf(w *httptest.ResponseRecorder) string {
	return string([]byte{byte('0' + w.Code/100), byte('0' + w.Code/10%10), byte('0' + w.Code%10), ' '})
}

// TestNoWayOut: however links are replaced while files are opened, nothing from
// outside is read.
func TestNoWayOut(t *testing.T) {
	dir := logs(t)
	tree := Tree{dir}
	link := filepath.Join(dir, "swapped")
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			to := []string{"syslog", "../secret", "pods"}[i%3]
			if err := errors.Join(os.Symlink(to, link+".new"), os.Rename(link+".new", link)); err != nil {
				done <- err
				return
			}
		}
	}()
	read := 0
	for range 3000 {
		f, err := tree.Open("swapped")
		if err != nil {
			continue
		}
		data, _ := io.ReadAll(f)
		if string(data) == "secret" {
			t.Fatal("the secret was read")
		}
		read++
		_ = f.Close()
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if read == 0 {
		t.Error("nothing was ever read")
	}
}

func TestForbiddenFiles(t *testing.T) {
	if os.Geteuid() == 0 {
		// Root may read everything: this is a test of who may not.
		runAsNobody(t)
		return
	}
	dir := os.Getenv("NODELOG_DIR")
	if dir == "" {
		dir = logs(t)
		if err := os.Chmod(filepath.Join(dir, "syslog"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if w := ask(New(dir).Files, "syslog"); w.Code != http.StatusForbidden {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	if w := ask(New(dir).Files, "plain"); w.Code != http.StatusOK {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

func runAsNobody(t *testing.T) {
	dir := logs(t)
	if err := os.Chmod(filepath.Join(dir, "syslog"), 0); err != nil {
		t.Fatal(err)
	}
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if d == os.TempDir() {
			break
		}
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "test")
	if err := os.WriteFile(copied, data, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied, "-test.run=^TestForbiddenFiles$", "-test.v")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "NODELOG_DIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, Groups: []uint32{}}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestQueryOfTheJournal(t *testing.T) {
	journalctl(t, journal)
	s := New(logs(t))
	const base = "called --utc --no-pager --output=short-precise "
	for query, want := range map[string]string{
		"?query=kubelet":                        base + "--unit=kubelet\nwarned\n",
		"?query=kubelet&query=sshd&tailLines=5": base + "--pager-end --lines=5 --unit=kubelet --unit=sshd\nwarned\n",
		"?query=kubelet&boot=-3":                base + "--unit=kubelet --boot -3\nwarned\n", // it has said why it failed
		"?query=kubelet&query=plain":            base + "--unit=kubelet\nwarned\nplain\n",
		"?query=plain":                          "plain\n",
		"?query=dotted":                         "dotted\n",
		"?query=svc":                            "inside\n",
		"?query=none":                           "\nlog not found for none\n",
		"?query=empty":                          "\nlog not found for empty\n",
		"?query=out":                            "\nerror getting log for out: open out: permission denied\n",
		"?query=..":                             "\nlog not found for ..\n",
		"?query=plain&tailLines=1":              "\noptions present and query resolved to log files for [plain]\ntry without specifying options\n",
		"/?query=plain":                         "plain\n",
		"?query=plain&query=none&query=dotted":  "plain\n\nlog not found for none\ndotted\n",
		"?query=/syslog":                        "one\ntwo\n",
		"?query=./pods/ns_p_uid/c/../c/0.log":   "container\n",
	} {
		w := ask(s.Query, query)
		if w.Code != 200 || w.Body.String() != want {
			t.Errorf("%s: %d %q, want %q", query, w.Code, w.Body, want)
		}
	}
	if got := ask(s.Query, "?query=plain").Header().Get("Content-Type"); got != "text/plain;charset=UTF-8" {
		t.Errorf("type %q", got)
	}
	for query, want := range map[string]string{
		"?query=":             "400 query: Invalid value: [\"\"]: may not be empty\n",
		"?query=plain&boot=x": "400 boot: Invalid value: \"x\": strconv.Atoi: parsing \"x\": invalid syntax\n",
		"syslog?query=plain":  "406 path not allowed in query mode\n",
		"syslog?tailLines=1":  "406 path not allowed in query mode\n",
		"?tailLines=1":        "406 query: Required value: cannot be empty with options\n",
		"?query=/none":        "406 query: Invalid value: [\"/none\"]: open none: no such file or directory\n",
		"?query=/out":         "406 query: Invalid value: [\"/out\"]: open out: permission denied\n",
		"?query=../secret":    "406 query: Invalid value: [\"../secret\"]: open secret: no such file or directory\n",
		"?query=/a&query=/b":  "406 query: Invalid value: [\"/a\",\"/b\"]: cannot specify more than one file\n",
		"syslog":              "200 one\ntwo\n", // no query at all
	} {
		if w := ask(s.Query, query); codeOf(w)+w.Body.String() != want {
			t.Errorf("%s: %s%q, want %q", query, codeOf(w), w.Body, want)
		}
	}
}

func TestGzip(t *testing.T) {
	journalctl(t, journal)
	s := New(logs(t))
	w := ask(s.Query, "?query=plain", "Accept-Encoding: gzip")
	if w.Header().Get("Content-Encoding") != "gzip" {
		t.Fatalf("encoding %q", w.Header().Get("Content-Encoding"))
	}
	r, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(r); err != nil || string(data) != "plain\n" {
		t.Errorf("%q, %v", data, err)
	}
	for _, accept := range []string{"gzip, deflate", "GZIP", "*", "identity"} {
		if w := ask(s.Query, "?query=plain", "Accept-Encoding: "+accept); w.Header().Get("Content-Encoding") != "" || w.Body.String() != "plain\n" {
			t.Errorf("%s: %q", accept, w.Body)
		}
	}
}

// TestWithoutAJournal: every service is looked for among the files.
func TestWithoutAJournal(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s := New(logs(t))
	for query, want := range map[string]string{
		"?query=kubelet":             "\nlog not found for kubelet\n",
		"?query=kubelet&tailLines=1": "\noptions present and query resolved to log files for [kubelet]\ntry without specifying options\n",
		"?query=plain":               "plain\n",
	} {
		if w := ask(s.Query, query); w.Code != 200 || w.Body.String() != want {
			t.Errorf("%s: %d %q, want %q", query, w.Code, w.Body, want)
		}
	}
}

// TestAQueryEndsWithItsCaller: a journalctl that hangs is killed.
func TestAQueryEndsWithItsCaller(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	journalctl(t, `if [ "$1" = --field ]; then echo kubelet.service; exit; fi
echo first
echo $$ > `+pid+`.new && mv `+pid+`.new `+pid+`
exec sleep 1000`)
	s := New(logs(t))
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequest(http.MethodGet, "http://node/?query=kubelet", nil).WithContext(ctx)
	w := httptest.NewRecorder()
	ended := make(chan struct{})
	go func() { defer close(ended); s.Query(w, r) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(pid); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		select {
		case <-tick.C:
		case <-ended:
			t.Fatalf("ended early: %q", w.Body)
		}
	}
	cancel()
	<-ended
	if w.Body.String() != "first\n" {
		t.Errorf("answer %q", w.Body)
	}
}

// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestTerminationMessage(t *testing.T) {
	fallback := func(p *v1.Pod) {
		p.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
	}
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		want string
	}{
		{"file", web(script("echo bye >/dev/termination-log; exit 1")), "bye\n"},
		{"nothing", web(script("echo log; exit 1")), ""},
		{"log on error", web(script("echo one; echo two; exit 1"), fallback), "one\ntwo\n"},
		{"no log on success", web(script("echo one; exit 0"), fallback), ""},
		{"file before log", web(script("echo log; echo file >/dev/termination-log; exit 1"), fallback), "file\n"},
		{"not UTF-8", web(script(`printf 'caf\351' >/dev/termination-log; exit 1`)), "caf\uFFFD"},
		{"a file cut within a character", web(script("printf '%s' " + strings.Repeat("日", 2000) + " >/dev/termination-log; exit 1")), strings.Repeat("日", maxMessage/3)},
		{"a log cut within a character", web(script("echo "+strings.Repeat("日", 2000)+"; exit 1"), fallback), strings.Repeat("日", (maxMessageLog-1)/3) + "\n"},
		{"last lines", web(script("log lines 100; exit 1"), fallback), "80 lines"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := start(t, false)
			n.run(tc.pod)
			exited := func() bool {
				return n.rt.Container("web", "web").GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
			}
			if err := n.rt.WaitFor(n.ctx(), exited); err != nil {
				t.Fatal(err)
			}
			got := n.TerminationMessage(n.ctx(), n.rt.Container("web", "web"))
			if tc.want == "80 lines" {
				if lines := strings.Count(got, "\n"); lines != 80 || len(got) > maxMessageLog {
					t.Errorf("%d lines, %d bytes", lines, len(got))
				}
				return
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTerminationMessageOfRunning(t *testing.T) {
	n := start(t, false)
	n.run(web())
	if got := n.TerminationMessage(n.ctx(), n.rt.Container("web", "web")); got != "" {
		t.Errorf("a running container said %q", got)
	}
}

func TestTerminationMessageIsBounded(t *testing.T) {
	dir := t.TempDir()
	big, pipe, link := filepath.Join(dir, "big"), filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := os.WriteFile(big, []byte(strings.Repeat("x", 9000)+"end"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(big, link); err != nil {
		t.Fatal(err)
	}
	message := func(path string) (string, error) {
		return fileMessage(&runtimeapi.ContainerStatus{Mounts: []*runtimeapi.Mount{{ContainerPath: "/m", HostPath: path}}}, "/m")
	}
	if got, err := message(big); err != nil || len(got) != maxMessage || !strings.HasSuffix(got, "end") {
		t.Errorf("big file: %d bytes, %v", len(got), err)
	}
	for _, trap := range []string{pipe, link, dir} {
		if got, err := message(trap); err == nil {
			t.Errorf("%s gave %q", trap, got)
		}
	}
	if got, err := message(filepath.Join(dir, "gone")); err != nil || got != "" {
		t.Errorf("a missing file: %q, %v", got, err)
	}
}

func TestTail(t *testing.T) {
	var out tail
	for range 100 {
		if _, err := out.Write([]byte(strings.Repeat("a", 99) + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if len(out.kept) != maxMessageLog || out.kept[len(out.kept)-1] != '\n' {
		t.Errorf("kept %d bytes", len(out.kept))
	}
}

// TestTextIsBounded: what replaces bytes that are no text is longer than they are.
func TestTextIsBounded(t *testing.T) {
	bad := []byte(strings.Repeat("\xff.", 3000))
	for _, got := range []string{lastText(bad, 100), firstText(bad, 100)} {
		if len(got) > 100 || len(got) < 90 || !utf8.ValidString(got) {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	}
	if got := lastText([]byte("日本"), 4); got != "本" {
		t.Errorf("the end: %q", got)
	}
	if got := firstText([]byte("日本"), 4); got != "日" {
		t.Errorf("the beginning: %q", got)
	}
	if got := firstText(nil, 4) + lastText(nil, 4); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sextant-node/sextant/cmd/sextant/internal/cli"
	"github.com/sextant-node/sextant/pkg/house"
)

// copied is the program where every user may run it.
func copied(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sxw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "sextant")
	from, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close() //nolint:errcheck // only read
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close(), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}

// words runs a command as a user; it returns its exit code and what it wrote to stderr.
func words(t *testing.T, uid uint32, command string, args ...string) (code int, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command, args...)
	cmd.Env, cmd.Dir = append(os.Environ(), program+"=1"), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		ended := (*exec.ExitError)(nil)
		if !errors.As(err, &ended) {
			t.Fatal(err)
		}
		code = ended.ExitCode()
	}
	return code, strings.TrimSpace(stderr.String())
}

// halfNode is the run folder of a node of which pleg alone takes connections.
func halfNode(t *testing.T) string {
	t.Helper()
	run, err := os.MkdirTemp("", "sxh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	socket := house.Paths{Run: run}.Socket(house.Pleg)
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return run
}

// goodConfig is a configuration with which a node starts on any machine.
func goodConfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubelet.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n" +
		"authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestFirstWords: what a verb that cannot do its work says, in one line, and exits with.
func TestFirstWords(t *testing.T) {
	binary := copied(t)
	none, dead := filepath.Join(t.TempDir(), "none"), t.TempDir()
	half, good := halfNode(t), goodConfig(t)
	const root, other = 0, 65534
	for _, tc := range []struct {
		uid  uint32
		args string
		code int
		want string
	}{
		{other, "status", 2, "sextant: status needs root: the services of a node answer no other user"},
		{other, "pods", 2, "pods needs root"},
		{other, "devices", 2, "devices needs root"},
		{other, "why web", 2, "why needs root"},
		{other, "logs web", 2, "logs needs root"},
		{other, "watch", 2, "watch needs root"},
		{other, "profile config", 2, "profile needs root"},
		{other, "up", 2, "up needs root"},
		{other, "down", 2, "down needs root"},
		{other, "prepare", 2, "prepare needs root"},
		{other, "nonsense", 2, `there is no verb "nonsense"`},
		{other, "stats", 2, `there is no verb "stats"; did you mean status?`},
		{other, "status --nonsense", 2, "--nonsense"},
		{other, "status web", 2, "web"},
		{other, "why", 2, "accepts 1 arg(s), received 0"},
		{root, "status --output=xml --run-dir=" + dead, 2, `--output: "xml" is not table, json or yaml`},
		{root, "status --run-dir=" + none, 3, "no node runs here: stat " + none + ": no such file or directory (sextant up starts one, or systemctl start sextant.slice)"},
		{root, "pods --run-dir=" + none, 3, "no node runs here"},
		{root, "why web --run-dir=" + none, 3, "no node runs here"},
		{root, "status --run-dir=" + dead, 3, "the node does not run: none of its services answers"},
		{root, "down --run-dir=" + none, 3, "there is nothing to stop: " + none + ": no node was started here"},
		{root, "pods --run-dir=" + dead, 3, "the node does not run: none of its services answers (sextant up starts it, or systemctl start sextant.slice)"},
		{root, "devices --run-dir=" + dead, 3, "the node does not run"},
		{root, "why web --run-dir=" + dead, 3, "the node does not run"},
		{root, "logs web --run-dir=" + dead, 3, "the node does not run"},
		{root, "watch --run-dir=" + dead, 3, "the node does not run"},
		{root, "profile config --run-dir=" + dead, 3, "the node does not run"},
		{root, "profile nonsense --run-dir=" + half, 2, `there is no service "nonsense": they are [bus podworker`},
		{root, "profile config --run-dir=" + half, 3, "config does not answer (sextant status says why): "},
		{root, "profile pleg --kind=xml --run-dir=" + half, 2, `--kind: "xml" is not cpu, heap,`},
		{root, "devices --run-dir=" + half, 3, "resource does not answer (sextant status says why): "},
		{root, "pods --run-dir=" + half, 3, "status does not answer (sextant status says why): "},
		{root, "watch --output=xml --run-dir=" + half, 2, `--output: "xml" is not text or json`},
		{root, "upgrade nonsense 1", 2, `there is no service "nonsense": they are`},
		{root, "upgrade prober", 2, "give a service and a version, or --all and a version"},
		{root, "upgrade prober 1 --library=" + none, 1, "no versions are installed in " + none + ": they come with the package"},
		{root, "rollback prober --library=" + none, 1, "prober has no former version (sextant versions lists what is installed)"},
		{root, "versions --library=" + none, 1, "no versions are installed in " + none + ": they come with the package"},
		{root, "prepare --run-dir=" + none, 1, "the services' accounts: missing: sextant-bus, sextant-podworker"},
		{root, "migrate --timeout=nonsense", 2, "--timeout"},
		{root, "config explain nonsense", 2, `"nonsense" is no field, flag or feature gate of a kubelet`},
		{root, "run nonsense", 2, `there is no service "nonsense"`},
		{root, "up --log-level=loud", 2, "--log-level: "},
		{root, "up --keep-secrets=never --config=" + good, 2, "never"},
		{root, "up --nonsense", 2, "--nonsense"},
		{root, "up --config=" + none, 1, none + ": no such file or directory"},
		{other, "help", 0, ""},
		{other, "--version", 0, ""},
		{other, "", 0, ""},
	} {
		t.Run(strings.ReplaceAll(strings.ReplaceAll(tc.args, none, "none"), dead, "dead"), func(t *testing.T) {
			code, said := words(t, tc.uid, binary, strings.Fields(tc.args)...)
			lines := strings.Split(said, "\n")
			if last := lines[len(lines)-1]; code != tc.code || !strings.Contains(last, tc.want) || (tc.code != 0) != (said != "") {
				t.Errorf("exit code %d, %q; want %d, %q", code, said, tc.code, tc.want)
			}
			if len(lines) > 2 { // "configuration:" stands above its problems
				t.Errorf("%d lines", len(lines))
			}
		})
	}
}

// rootless are the verbs that need no root; the others refuse other users before they do
// anything.
var rootless = []string{"completion", "config", "help"}

// TestEveryVerbNamesRoot: no verb fails for another user in a way of its own.
func TestEveryVerbNamesRoot(t *testing.T) {
	binary := copied(t)
	args := map[string][]string{
		"why": {"web"}, "logs": {"web"}, "profile": {"config"}, "upgrade": {"prober", "1"}, "rollback": {"prober"}, "run": {"bus"},
	}
	for _, verb := range cli.Root().Commands() {
		if verb.Hidden || slices.Contains(rootless, verb.Name()) {
			continue
		}
		code, said := words(t, 65534, binary, append([]string{verb.Name()}, args[verb.Name()]...)...)
		lines := strings.Split(said, "\n")
		if last := lines[len(lines)-1]; code != 2 || !strings.Contains(last, verb.Name()+" needs root") {
			t.Errorf("%s: exit code %d, %q", verb.Name(), code, said)
		}
	}
}

// TestSwapIsOn: a machine with swap is named with what to do.
func TestSwapIsOn(t *testing.T) {
	swaps := filepath.Join(t.TempDir(), "swaps")
	if err := os.WriteFile(swaps, []byte("Filename Type Size Used Priority\n/dev/sda2 partition 1048572 0 -2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := `mount --make-rprivate / && mount --bind "$1" /proc/swaps && shift && exec "$@"`
	code, said := words(t, 0, "unshare", "-m", "sh", "-c", script, "sh", swaps, copied(t), "up", "--config="+goodConfig(t))
	want := "failSwapOn: Forbidden: swap is on (/dev/sda2); turn it off or set failSwapOn: false"
	if lines := strings.Split(said, "\n"); code != 1 || !strings.Contains(lines[len(lines)-1], want) {
		t.Errorf("exit code %d, %q", code, said)
	}
}

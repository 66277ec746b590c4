// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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

// TestFirstWords: what a verb that cannot do its work says, in one line, and exits with.
func TestFirstWords(t *testing.T) {
	binary := copied(t)
	none, dead := filepath.Join(t.TempDir(), "none"), t.TempDir()
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
		{root, "down --run-dir=" + none, 1, "no node was started here"},
		{root, "up --config=" + none, 1, none + ": no such file or directory"},
		{other, "help", 0, ""},
		{other, "--version", 0, ""},
		{other, "", 0, ""},
	} {
		t.Run(strings.ReplaceAll(strings.ReplaceAll(tc.args, none, "none"), dead, "dead"), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), binary, strings.Fields(tc.args)...)
			cmd.Env, cmd.Dir = append(os.Environ(), program+"=1"), "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tc.uid, Gid: tc.uid}}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			code := 0
			if err := cmd.Run(); err != nil {
				ended := (*exec.ExitError)(nil)
				if !errors.As(err, &ended) {
					t.Fatal(err)
				}
				code = ended.ExitCode()
			}
			said := strings.TrimSpace(stderr.String())
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

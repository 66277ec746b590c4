// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// kubectlPods are there for kubectl: what they print is always the same.
func kubectlPods() []comparedPod {
	shell := func(script string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			main(pod).Image, main(pod).Command = images.Busybox, []string{"sh", "-c", script}
		}
	}
	const lines = "for i in 1 2 3 4 5; do echo line $i; done; "
	noGrace := func(pod *corev1.Pod) { now := int64(0); pod.Spec.TerminationGracePeriodSeconds = &now }
	return []comparedPod{
		{name: "shell", settled: running, build: all(noGrace, shell("echo only; exec sleep 100000"), func(pod *corev1.Pod) {
			pod.Spec.Containers = append(pod.Spec.Containers, *main(pod).DeepCopy())
			pod.Spec.Containers[1].Name, pod.Spec.Containers[1].Command = "second", []string{"sh", "-c", "echo 1; echo 2; exec sleep 100000"}
		})},
		{name: "ended", settled: phase(corev1.PodFailed), build: all(policy(corev1.RestartPolicyNever), shell(lines+"exit 3"))},
		{name: "again", unsteady: true, settled: waiting("CrashLoopBackOff", 1), build: shell("echo again; exit 1")},
		{name: "terminal", settled: running, build: all(noGrace, shell("exec sh"), func(pod *corev1.Pod) { main(pod).Stdin, main(pod).TTY = true, true })},
		{name: "echoes", settled: running, build: all(noGrace, shell("exec cat"), func(pod *corev1.Pod) { main(pod).Stdin = true })},
		{name: "web", settled: running, build: func(pod *corev1.Pod) { main(pod).ReadinessProbe = httpProbe("/ready") }},
	}
}

// kubectl runs a command against this side's namespace; the facts are how it
// ended and each line it said.
func (s *side) kubectl(ctx context.Context, stdin string, args ...string) []string {
	ctx, cancel := context.WithTimeout(ctx, 4*askLimit)
	defer cancel()
	shown := s.normalizer().Text("kubectl " + strings.Join(args, " "))
	cmd, err := s.cp.KubectlCommand(ctx, append([]string{"--namespace=" + s.ns}, args...)...)
	if err != nil {
		return []string{shown + ": " + err.Error()}
	}
	var out, warn bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &warn
	err = cmd.Run()
	facts := []string{shown + ": " + ended(ctx, err)}
	for name, b := range map[string]*bytes.Buffer{"says": &out, "warns": &warn} {
		// What several containers say comes in any order.
		for line := range strings.Lines(s.normalizer().Text(b.String())) {
			facts = append(facts, fmt.Sprintf("%s: %s %q", shown, name, line))
		}
	}
	return facts
}

func ended(ctx context.Context, err error) string {
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "no end"
	case errors.As(err, &exit):
		return "exit code " + strconv.Itoa(exit.ExitCode())
	case err != nil:
		return err.Error()
	}
	return "exit code 0"
}

// script is the facts of commands, one after the other.
func script(commands ...[]string) func(context.Context, *side) ([]string, error) {
	return func(ctx context.Context, s *side) ([]string, error) {
		facts := make([][]string, len(commands))
		var wait errgroup.Group
		wait.SetLimit(4)
		for i, c := range commands {
			wait.Go(func() error {
				stdin, args := "", slices.Clone(c)
				if text, ok := strings.CutPrefix(c[0], "<"); ok {
					stdin, args = text, args[1:]
				}
				for i := range args {
					args[i] = strings.ReplaceAll(args[i], "$NODE", s.Name)
				}
				facts[i] = s.kubectl(ctx, stdin, args...)
				return nil
			})
		}
		err := wait.Wait()
		return slices.Concat(facts...), errors.Join(err, ctx.Err())
	}
}

// words splits a command that has no quotes; the first may be "<text" for stdin.
func words(command string) []string { return strings.Fields(command) }

func kubectlAspects() []aspect {
	run := func(script string) []string { return []string{"exec", "shell", "-c=main", "--", "sh", "-c", script} }
	raw := func(path string) []string { return words("get --raw /api/v1/nodes/$NODE/proxy/" + path) }
	all := []aspect{
		{name: "kubectl-logs", facts: script(
			words("logs ended"), words("logs ended -f"), words("logs ended --tail=2"), words("logs ended --tail=0"), words("logs ended --limit-bytes=8"),
			words("logs ended --timestamps"), words("logs ended --since=1h --tail=1"), words("logs ended --since=1s"), words("logs ended --since-time=2020-01-01T00:00:00Z --tail=3"),
			words("logs ended --previous"), words("logs again --previous"), words("logs shell"), words("logs shell --all-containers"), words("logs shell --all-containers --prefix --timestamps"),
			words("logs shell -c second --tail=1"), words("logs shell -c none"), words("logs none"), words("logs noconfig"), words("logs rejected"), words("logs initfailed -c one"), words("logs initfailed"), words("logs nosecret"),
			words("logs missingimage"), words("logs static-$NODE --tail=1 --limit-bytes=1"), words("logs deleted --tail=1 --limit-bytes=1"),
		)},
		{name: "kubectl-exec", facts: script(
			words("exec shell -- echo hello"), run("echo out; echo err >&2"), run("exit 7"), run("kill -9 $$"), append([]string{"<some input\nof two lines\n"}, words("exec -i shell -c second -- cat")...),
			append([]string{"<"}, words("exec -i shell -- cat")...), append([]string{"<1\n2\n"}, words("exec -i shell -- head -n 1")...), words("exec shell -- /none"), words("exec shell -c none -- true"), words("exec none -- true"),
			words("exec ended -- true"), words("exec noconfig -- true"), words("exec shell -t -- sh -c [ -t 1 ]"), run("yes 0123456789 | head -n 300000 | md5sum"), run("head -c 3000000 /dev/zero | tr '\\0' x | fold | tail -n 1"),
			append([]string{"<" + strings.Repeat("0123456789abcde\n", 1<<16)}, words("exec -i shell -- md5sum")...), words("exec static-$NODE -- /hello echo static"), words("exec init -c side -- /hello echo sidecar"),
		)},
		{name: "kubectl-proxy", facts: script(
			raw("healthz"), raw("healthz/ping"), raw("healthz/none"), raw("logs/"), raw("logs/none"), raw("none"), raw(""), words("get --raw /api/v1/nodes/$NODE/proxy"), raw("metrics/none"),
			raw("containerLogs/none/none/none"), raw("debug/pprof/none"),
		)},
		{name: "kubectl-describe", facts: describes},
		{name: "kubectl-cp", facts: copies},
		{name: "kubectl-cp-much", facts: copiesMuch, says: []string{"cp: 32 of 32 files came back as they were"}},
		{name: "kubectl-terminal", facts: terminals, says: []string{
			"exec -it: the first size: <nil>", "exec -it: the size after a change: <nil>", "exec -it: exit 5 is exit code 5",
			"exec -it: what was read comes back: <nil>", "attach -it: the first size: <nil>", "attach -it: the size after a change: <nil>",
			"attach -it: what is typed is run: <nil>",
		}},
		{name: "kubectl-attach-once", facts: attachesOnce, says: []string{"attach to an input that is there once: once 2", "the container ends with its input: <nil>"}},
		{name: "kubectl-top", facts: tops, before: func(t *testing.T, p pair) { p.sextant.cp.StartMetricsServer(t) }},
		{name: "kubectl-attach", facts: attaches},
		{name: "kubectl-port-forward", facts: forwards, says: []string{
			"port-forward: 100 connections at once: <nil>", "port-forward: once more on each of them: <nil>",
		}},
		{name: "kubectl-follow", facts: follows},
		{name: "kubectl-debug", facts: debugs},
	}
	for i := range all {
		all[i].alone = true
	}
	return all
}

// ages are times that kubectl tells as spans, and counts of Events.
var ages = regexp.MustCompile(`\b\d+[smhd](\d+[smhd])?\b( \(x\d+ over \w+\))?|AGE|\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d \+0000`)

// describes are the lines of kubectl describe, in no order and without their
// columns: Events that came in the same second come in any.
func describes(ctx context.Context, s *side) ([]string, error) {
	var facts []string
	for _, what := range []string{
		"pod/plain", "pod/guaranteed", "pod/init", "pod/failed", "pod/volumes", "pod/missingimage", "pod/noconfig", "pod/rejected", "pod/probes", "pod/static-" + s.Name, "node/" + s.Name,
	} {
		text, err := s.kubectlText(ctx, "describe", what)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			line = ages.ReplaceAllString(s.normalizer().Text(line), "AGE")
			facts = append(facts, s.normalizer().Text(what)+": "+strings.Join(strings.Fields(line), " "))
		}
	}
	return facts, nil
}

func (s *side) kubectlText(ctx context.Context, args ...string) (string, error) {
	cmd, err := s.cp.KubectlCommand(ctx, append([]string{"--namespace=" + s.ns}, args...)...)
	if err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: kubectl %s: %w: %s", s.name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// copies copies a file into a container and back.
func copies(ctx context.Context, s *side) ([]string, error) {
	dir := filepath.Join(filepath.Dir(s.Root), "cp")
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	content := strings.Repeat("some text\n", 1000)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755), os.WriteFile(from, []byte(content), 0o640)); err != nil {
		return nil, err
	}
	facts := s.kubectl(ctx, "", "cp", "-c=main", from, "shell:/tmp/copied")
	facts = append(facts, s.kubectl(ctx, "", "cp", "-c=main", "shell:/tmp/copied", to)...)
	back, err := os.ReadFile(to)
	facts = append(facts, fmt.Sprintf("what came back is what was sent: %v, %v", string(back) == content, err))
	return append(facts, s.kubectl(ctx, "", "cp", "-c=main", "shell:/none", filepath.Join(dir, "none"))...), nil
}

// attaches reads what a container is told on its standard input.
func attaches(ctx context.Context, s *side) ([]string, error) {
	facts := s.kubectl(ctx, "", "attach", "none")
	facts = append(facts, s.kubectl(ctx, "", "attach", "shell", "-c=none")...)
	facts = append(facts, s.kubectl(ctx, "", "attach", "ended")...)
	cmd, err := s.cp.KubectlCommand(ctx, "--namespace="+s.ns, "attach", "-i", "echoes")
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	lines, err := output(cmd)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }() // it goes on for ever
	for i := range 3 {
		if _, err := fmt.Fprintf(in, "attached %d\n", i); err != nil {
			return nil, err
		}
		select {
		case line := <-lines:
			facts = append(facts, "attached: "+line)
		case <-time.After(askLimit):
			facts = append(facts, "attached: nothing comes back")
		}
	}
	return facts, nil
}

// output starts a command and returns its lines as they come.
func output(cmd *exec.Cmd) (<-chan string, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	return lines, cmd.Start()
}

// follows reads a log as it grows.
func follows(ctx context.Context, s *side) ([]string, error) {
	cmd, err := s.cp.KubectlCommand(ctx, "--namespace="+s.ns, "logs", "-f", "plain", "-c=second", "--tail=0")
	if err != nil {
		return nil, err
	}
	lines, err := output(cmd)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }() // it goes on for ever
	for range 3 {
		select {
		case line, ok := <-lines:
			if !ok || line == "" {
				return []string{"logs -f ends"}, nil
			}
		case <-time.After(askLimit):
			return []string{"logs -f says nothing"}, nil
		}
	}
	return []string{"logs -f goes on"}, nil
}

var forwarding = regexp.MustCompile(`Forwarding from 127\.0\.0\.1:(\d+) -> (\d+)`)

// forwards sends requests through kubectl port-forward: many at once, one that
// closes its half early, and many on connections that stay.
func forwards(ctx context.Context, s *side) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 12*askLimit)
	defer cancel()
	facts := s.kubectl(ctx, "", "port-forward", "none", ":8080")
	facts = append(facts, s.kubectl(ctx, "", "port-forward", "ended", ":8080")...)
	cmd, err := s.cp.KubectlCommand(ctx, "--namespace="+s.ns, "port-forward", "web", ":8080", "--address=127.0.0.1")
	if err != nil {
		return nil, err
	}
	lines, err := output(cmd)
	if err != nil {
		return nil, err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }() // it goes on for ever
	var port string
	for line := range lines {
		if m := forwarding.FindStringSubmatch(line); m != nil {
			port = m[1]
			break
		}
	}
	if port == "" {
		return append(facts, "port-forward does not begin"), nil
	}
	var good atomic.Int32
	var wait errgroup.Group
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: askLimit}
	for range 20 {
		wait.Go(func() error {
			resp, err := client.Get("http://127.0.0.1:" + port + "/")
			if err != nil {
				return err
			}
			body, err := io.ReadAll(resp.Body)
			if strings.HasPrefix(string(body), "hello from web") {
				good.Add(1)
			}
			return errors.Join(err, resp.Body.Close())
		})
	}
	err = wait.Wait()
	facts = append(facts, fmt.Sprintf("port-forward: %d good answers of 20, %v", good.Load(), err))
	facts = append(facts, "port-forward, half closed: "+halfClosed(ctx, port))
	return append(facts, s.forwardsMany(ctx, "127.0.0.1:"+port)...), ctx.Err()
}

// halfClosed sends a request and closes its half before the answer.
func halfClosed(ctx context.Context, port string) string {
	conn, err := (&net.Dialer{Timeout: askLimit}).DialContext(ctx, "tcp", "127.0.0.1:"+port)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(askLimit))
	if _, err := io.WriteString(conn, "GET /slow?for=1s HTTP/1.0\r\n\r\n"); err != nil {
		return err.Error()
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err.Error()
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	first, _, _ := strings.Cut(string(answer), "\r\n")
	return first
}

// debugs starts an ephemeral container and reads what it said.
func debugs(ctx context.Context, s *side) ([]string, error) {
	name := fmt.Sprintf("debugger-%d", s.fresh.Add(1))
	out, err := s.kubectlText(ctx, "debug", "shell", "--image="+images.Busybox, "--image-pull-policy=IfNotPresent", "--target=main", "--profile=general", "-c="+name, "--", "sh", "-c", "echo debugging; ps | grep -c 'sleep 10000[0]'")
	if err != nil {
		return nil, err
	}
	facts := []string{"debug: " + strings.ReplaceAll(out, name, "DEBUGGER")}
	var log string
	err = harness.Within(ctx, askLimit, func(ctx context.Context) (err error) {
		if log, err = s.kubectlText(ctx, "logs", "shell", "-c="+name); err == nil && strings.Count(log, "\n") < 2 {
			err = errors.New("it has not said all")
		}
		return err
	})
	if err != nil {
		return append(facts, "debug: no log"), ctx.Err()
	}
	return append(facts, "debug: the log is "+strconv.Quote(log)), nil
}

// importBusybox gives both runtimes the image that kubectl's pods run.
func (p pair) importBusybox(t *testing.T) {
	t.Helper()
	archive := harness.The(t).Archive(t, images.Busybox)
	for _, s := range []*side{p.reference, p.sextant} {
		if err := s.Runtime.ImportImage(t.Context(), archive, images.Busybox); err != nil {
			t.Fatal(err)
		}
	}
}

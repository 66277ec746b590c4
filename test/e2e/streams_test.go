package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// TestStreams is what people do with kubectl inside pods, by the real kubectl and
// API server, and what it outlives.
func TestStreams(t *testing.T) {
	cp := harness.StartControlPlane(t)
	n := &node{kind: "v2-bus", flavour: harness.V2, cp: cp, registry: harness.StartRegistry(t)}
	n.Node = harness.NewNode(t, harness.NodeOptions{Flavour: n.flavour, ControlPlane: cp})
	n.seen, n.paths = observe(t, cp), house.Paths{Run: n.Run, State: n.State}
	if err := n.Runtime.ImportImage(t.Context(), harness.The(t).Archive(t, images.Busybox), images.Busybox); err != nil {
		t.Fatal(err)
	}
	n.Up(t)
	e := newEnv(t, n)
	e.create(e.shell("shell"))
	e.create(e.pod("web"))
	e.awaitRunning("shell", usual)
	e.awaitRunning("web", usual)
	t.Run("pods", func(t *testing.T) {
		for name, test := range map[string]func(*env){
			"exec": execByKubectl, "exec in a terminal": execInTerminal, "attach": attachByKubectl, "cp": copyByKubectl,
			"port-forward": forwardByKubectl, "debug": debugByKubectl, "running pods": runningPods,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				sub := &env{T: t, n: n, ns: e.ns}
				dumpOnFailure(t, n, e.ns)
				test(sub)
			})
		}
	})
	t.Run("sessions outlive the others", func(t *testing.T) { sessionsOutlive(&env{T: t, n: n, ns: e.ns}) })
	t.Run("the listener outlives nodeapi", func(t *testing.T) { listenerOutlives(&env{T: t, n: n, ns: e.ns}) })
}

// shell is a pod with a shell and an input of its own.
func (e *env) shell(name string, command ...string) *corev1.Pod {
	pod := e.pod(name)
	if len(command) == 0 {
		command = []string{"sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done"}
	}
	pod.Spec.Containers = []corev1.Container{{Name: "shell", Image: images.Busybox, Command: command}}
	return pod
}

func execByKubectl(e *env) {
	got := e.kubectl(nil, "exec", "shell", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
	if got.out != "out\n" || !strings.HasPrefix(got.err, "err\n") || got.code != 7 {
		e.Errorf("outputs and exit code: %+v", got)
	}
	if got := e.kubectl(nil, "exec", "shell", "--", "true"); got.code != 0 || got.out+got.err != "" {
		e.Errorf("true: %+v", got)
	}
	big := random(3 << 20)
	if got := e.kubectl(bytes.NewReader(big), "exec", "-i", "shell", "--", "cat"); got.code != 0 || got.out != string(big) {
		e.Errorf("cat of %d bytes: %d came back, %d %s", len(big), len(got.out), got.code, got.err)
	}
	if got := e.kubectl(nil, "exec", "shell", "--", "no-such-command"); got.code == 0 || !strings.Contains(got.err, "no-such-command") {
		e.Errorf("a missing command: %+v", got)
	}
	if got := e.kubectl(nil, "exec", "shell", "-c", "none", "--", "true"); got.code == 0 || !strings.Contains(got.err, "none") {
		e.Errorf("a missing container: %+v", got)
	}
}

// random are bytes of every value.
func random(n int) []byte {
	data := make([]byte, n)
	source := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(source.Uint32())
	}
	return data
}

func execInTerminal(e *env) {
	t := e.onTerminal(31, 91, "exec", "-it", "shell", "--", "sh")
	t.until(e, "stty size", "31 91")
	if err := t.resize(47, 133); err != nil {
		e.Fatal(err)
	}
	t.until(e, "stty size", "47 133")
	if err := t.typed("exit 5\n"); err != nil {
		e.Fatal(err)
	}
	if err := t.cmd.Wait(); err == nil || t.cmd.ProcessState.ExitCode() != 5 {
		e.Errorf("the shell's exit 5 was %v; it showed %q", err, t.text())
	}
}

func attachByKubectl(e *env) {
	pod := e.shell("attached", "cat")
	pod.Spec.Containers[0].Stdin, pod.Spec.Containers[0].StdinOnce = true, true
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	e.create(pod)
	e.awaitRunning("attached", usual)
	session := e.talk("attach", "-i", "-q", "attached")
	for _, line := range []string{"one", "two", "three"} {
		if err := session.exchange(line); err != nil {
			e.Fatalf("attach: %v, %s", err, session.errout)
		}
	}
	if err := session.end(); err != nil {
		e.Errorf("attach's end: %v", err)
	}
	e.await("attached", usual, "to have ended with its input", func(pod *corev1.Pod) error {
		if pod.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("it is %s", brief(pod))
		}
		return nil
	})
	if got := e.kubectl(nil, "logs", "attached"); got.out != "one\ntwo\nthree\n" {
		e.Errorf("its log: %+v", got)
	}
}

func copyByKubectl(e *env) {
	dir := e.TempDir()
	there, back := filepath.Join(dir, "there"), filepath.Join(dir, "back")
	want := random(2 << 20)
	if err := os.WriteFile(there, want, 0o600); err != nil {
		e.Fatal(err)
	}
	for _, args := range [][]string{{there, "shell:/tmp/copied"}, {"shell:/tmp/copied", back}} {
		if got := e.kubectl(nil, append([]string{"cp"}, args...)...); got.code != 0 {
			e.Fatalf("cp %v: %+v", args, got)
		}
	}
	got, err := os.ReadFile(back)
	if err != nil || !bytes.Equal(got, want) {
		e.Errorf("%d bytes came back of %d, %v", len(got), len(want), err)
	}
}

// forward opens a port-forward and tells where it listens.
func (e *env) forward(pod string, port int) (address string) {
	e.Helper()
	session := e.talk("port-forward", "pod/"+pod, fmt.Sprintf(":%d", port))
	e.Cleanup(func() {
		_ = session.Process.Kill() // or it has ended
		_ = session.Wait()         // killed
	})
	line, err := session.lines.ReadString('\n')
	found := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	if err != nil || found == "" {
		e.Fatalf("port-forward: %q, %v, %s", line, err, session.errout)
	}
	go func() { _, _ = io.Copy(io.Discard, session.lines) }() // it tells of every connection
	return found
}

// get is one request on a connection of its own, which the client closes for
// writing as soon as it has sent it.
func get(address, path string) (string, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // read to its end
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path); err != nil {
		return "", err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), errors.Join(err, resp.Body.Close())
}

func forwardByKubectl(e *env) {
	address := e.forward("web", 8080)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if _, err := get(address, "/healthz"); err != nil {
				e.Errorf("connection %d: %v", i, err)
			}
		})
	}
	all.Wait()
	// Nobody listens: that connection ends, and the client says why.
	session := e.talk("port-forward", "pod/web", ":9")
	line, err := session.lines.ReadString('\n')
	found := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	if err != nil || found == "" {
		e.Fatalf("port-forward: %q, %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, session.lines) }() // it tells of every connection
	if body, err := get(found, "/"); err == nil {
		e.Errorf("a port nobody listens on answers %q", body)
	}
	_ = session.Process.Kill() // or it has ended, for it lost its connection
	_ = session.Wait()         // killed
	if !strings.Contains(session.errout.String(), "refused") {
		e.Errorf("it says %q", session.errout)
	}
}

func debugByKubectl(e *env) {
	e.create(e.pod("debugged"))
	e.awaitRunning("debugged", usual)
	got := e.kubectl(nil, "debug", "debugged", "--image="+images.Busybox, "--container=debugger", "--target=hello", "--profile=general",
		"--", "sh", "-c", "echo in there; sleep 1000")
	if got.code != 0 {
		e.Fatalf("debug: %+v", got)
	}
	harness.Eventually(e, usual, "the debugger's log", func(context.Context) error {
		if got := e.kubectl(nil, "logs", "debugged", "-c", "debugger", "--tail=1"); got.out != "in there\n" {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	if got := e.kubectl(nil, "exec", "debugged", "-c", "debugger", "--", "echo", "still"); got.out != "still\n" {
		e.Errorf("exec in the debugger: %+v", got)
	}
	e.delete("debugged", 1)
}

func runningPods(e *env) {
	harness.Eventually(e, usual, "the pods that run", func(ctx context.Context) error {
		data, err := e.n.proxied(ctx, "/runningpods/")
		if err == nil && (!bytes.Contains(data, []byte(`"name":"shell"`)) || !bytes.Contains(data, []byte(`"kind":"PodList"`))) {
			err = fmt.Errorf("it says %s", data)
		}
		return err
	})
}

// sessionsOutlive has sessions open while every service but nodeapi is killed: no
// byte is lost and nobody is cut off.
func sessionsOutlive(e *env) {
	session := e.talk("exec", "-i", "shell", "--", "cat")
	terminal := e.onTerminal(24, 80, "exec", "-it", "shell", "--", "sh")
	terminal.until(e, "echo here-$((1+1))", "here-2")
	address := e.forward("web", 8080)
	held, err := net.Dial("tcp", address)
	if err != nil {
		e.Fatal(err)
	}
	defer held.Close() //nolint:errcheck // the test's end
	reader := bufio.NewReader(held)
	ask := func() error {
		if err := held.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			return err
		}
		if _, err := fmt.Fprint(held, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		resp, err := http.ReadResponse(reader, nil)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return errors.Join(err, resp.Body.Close())
	}
	lines := 0
	alive := func(when string) {
		e.Helper()
		for range 50 {
			if err := session.exchange(fmt.Sprintf("%s line %d %s", when, lines, strings.Repeat("x", lines%500))); err != nil {
				e.Fatalf("%s: exec: %v, %s", when, err, session.errout)
			}
			lines++
		}
		if err := ask(); err != nil {
			e.Fatalf("%s: a forwarded connection: %v", when, err)
		}
		if _, err := get(address, "/healthz"); err != nil {
			e.Fatalf("%s: a new forwarded connection: %v", when, err)
		}
		terminal.until(e, fmt.Sprintf("echo %d-$((1+1))", lines), fmt.Sprintf("%d-2", lines))
	}
	alive("before")
	for _, s := range e.n.services() {
		if s == house.NodeAPI {
			continue
		}
		old, err := e.n.hello(e.Context(), s)
		if err != nil {
			e.Fatal(err)
		}
		if err := unix.Kill(int(old.GetPid()), unix.SIGKILL); err != nil {
			e.Fatal(err)
		}
		alive("after kill -9 " + string(s))
		harness.Eventually(e, usual, string(s)+" to be back", func(ctx context.Context) error { return e.again(ctx, s, old) })
		alive("with a new " + string(s))
	}
	if err := session.end(); err != nil {
		e.Errorf("exec's end: %v", err)
	}
	e.Logf("%d lines went there and back", lines)
}

// listenerOutlives kills nodeapi while callers come: all of them are answered.
func listenerOutlives(e *env) {
	old, err := e.n.hello(e.Context(), house.NodeAPI)
	if err != nil {
		e.Fatal(err)
	}
	if err := unix.Kill(int(old.GetPid()), unix.SIGKILL); err != nil {
		e.Fatal(err)
	}
	asked, refused := 0, 0
	harness.Eventually(e, usual, "a new nodeapi", func(ctx context.Context) error {
		conn, err := net.DialTimeout("tcp", e.apiAddress(), time.Second)
		asked++
		if errors.Is(err, unix.ECONNREFUSED) {
			refused++
			return err
		}
		if err != nil {
			return err
		}
		return errors.Join(conn.Close(), e.again(ctx, house.NodeAPI, old))
	})
	if refused > 0 {
		e.Errorf("%d of %d connections were refused while nodeapi was started again", refused, asked)
	}
	if got := e.kubectl(nil, "exec", "shell", "--", "echo", "again"); got.out != "again\n" {
		e.Errorf("exec: %+v", got)
	}
}

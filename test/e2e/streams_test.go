// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// TestStreams is what sessions into pods, by the real kubectl and API server, outlive.
// What people do in them is compared with a kubelet's by TestCompare.
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

// random are bytes of every value.
func random(n int) []byte {
	data := make([]byte, n)
	source := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(source.Uint32())
	}
	return data
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
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
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
		if err := held.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
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

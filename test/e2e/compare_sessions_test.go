// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/images"
)

// session is a kubectl on a terminal.
func (s *side) session(ctx context.Context, rows, columns uint16, args ...string) (*terminal, error) {
	cmd, err := s.cp.KubectlCommand(ctx, append([]string{"--namespace=" + s.ns}, args...)...)
	if err != nil {
		return nil, err
	}
	return openTerminal(cmd, rows, columns)
}

// close hangs up, as a closed window does.
func (t *terminal) close() {
	_ = t.cmd.Process.Kill() // or it has ended
	_ = t.cmd.Wait()         // killed, or waited for before
	_ = t.master.Close()
}

// did is what became of a step, in a word or as an error.
func did(what string, err error) string { return fmt.Sprintf("%s: %v", what, err) }

// terminals are sessions on a terminal: its size, its keys, its end.
func terminals(ctx context.Context, s *side) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 12*askLimit)
	defer cancel()
	var facts []string
	for _, part := range []func(context.Context, *side) ([]string, error){sizes, keys, attachedTerminal} {
		found, err := part(ctx, s)
		if err != nil {
			return nil, err
		}
		facts = append(facts, found...)
	}
	return facts, ctx.Err()
}

// sizes looks at the first size of a terminal and at a later one.
func sizes(ctx context.Context, s *side) ([]string, error) {
	t, err := s.session(ctx, 31, 91, "exec", "-it", "shell", "-c=main", "--", "sh")
	if err != nil {
		return nil, err
	}
	defer t.close()
	facts := []string{did("exec -it: the first size", t.shows(ctx, "stty size", "31 91"))}
	err = t.resize(47, 133)
	facts = append(facts, did("exec -it: the size after a change", errors.Join(err, t.shows(ctx, "stty size", "47 133"))))
	if err := t.typed("exit 5\n"); err != nil {
		return nil, err
	}
	return append(facts, "exec -it: exit 5 is "+ended(ctx, t.cmd.Wait())), nil
}

// keys ends a shell with Ctrl-D and a program with Ctrl-C.
func keys(ctx context.Context, s *side) ([]string, error) {
	var facts []string
	for _, c := range []struct{ name, script, ready, key string }{
		{"Ctrl-D in a shell", "echo ready; exec sh", "ready", endOfInput},
		{"Ctrl-D in cat", "echo ready; exec cat", "ready", endOfInput},
		{"Ctrl-C in sleep", "echo ready; exec sleep 100000", "ready", interrupt},
		{"a line for read", "echo ready; read line; echo it is $line; exit 4", "ready", "typed\n"},
	} {
		t, err := s.session(ctx, 24, 80, "exec", "-it", "shell", "-c=main", "--", "sh", "-c", c.script)
		if err != nil {
			return nil, err
		}
		shown := t.shows(ctx, "", c.ready)
		err = t.typed(c.key)
		end := ended(ctx, t.cmd.Wait())
		facts = append(facts, fmt.Sprintf("exec -it: %s: begins %v, typed %v, %s", c.name, shown, err, end))
		if c.key == "typed\n" {
			facts = append(facts, did("exec -it: what was read comes back", t.shows(ctx, "", "it is typed")))
		}
		t.close()
	}
	return facts, nil
}

// attachedTerminal is attached to a shell that has a terminal of its own.
func attachedTerminal(ctx context.Context, s *side) ([]string, error) {
	t, err := s.session(ctx, 33, 95, "attach", "-it", "terminal")
	if err != nil {
		return nil, err
	}
	defer t.close()
	facts := []string{did("attach -it: the first size", t.shows(ctx, "stty size", "33 95"))}
	err = t.resize(44, 122)
	facts = append(facts, did("attach -it: the size after a change", errors.Join(err, t.shows(ctx, "stty size", "44 122"))))
	return append(facts, did("attach -it: what is typed is run", t.shows(ctx, "echo $((6*7))-times", "42-times"))), nil
}

// attachesOnce talks to a container that has its input once: it ends with it.
func attachesOnce(ctx context.Context, s *side) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 8*askLimit)
	defer cancel()
	name := fmt.Sprintf("once-%d", s.fresh.Add(1))
	pods := s.cp.Admin.CoreV1().Pods(s.ns)
	_, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{NodeName: s.Name, RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
			Name: "main", Image: images.Busybox, Command: []string{"sh", "-c", "cat; exit 6"}, Stdin: true, StdinOnce: true,
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	defer func() {
		now := int64(0)
		_ = pods.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{GracePeriodSeconds: &now}) // or the namespace's end does
	}()
	if err := s.await(ctx, name, running); err != nil {
		return nil, err
	}
	cmd, err := s.cp.KubectlCommand(ctx, "--namespace="+s.ns, "attach", "-i", "-q", name)
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
	var facts []string
	for i := range 3 {
		if _, err := fmt.Fprintf(in, "once %d\n", i); err != nil {
			return nil, err
		}
		facts = append(facts, "attach to an input that is there once: "+<-lines)
	}
	if err := in.Close(); err != nil {
		return nil, err
	}
	for range lines { // until its end
	}
	facts = append(facts, "attach to an input that is there once: "+ended(ctx, cmd.Wait()))
	err = s.await(ctx, name, phase(corev1.PodFailed))
	facts = append(facts, did("the container ends with its input", err))
	log, err := s.kubectlText(ctx, "logs", name)
	return append(facts, fmt.Sprintf("its log: %q", log)), err
}

// await waits for a pod of this side.
func (s *side) await(ctx context.Context, name string, ok func(*corev1.Pod) error) error {
	return harness.Within(ctx, usual, func(context.Context) error {
		pod := s.seen.pod(s.ns, name)
		if pod == nil {
			return errors.New("it is not in the API")
		}
		return ok(pod)
	})
}

// copiesMuch copies a big file and a tree into a container and back.
func copiesMuch(ctx context.Context, s *side) ([]string, error) {
	dir := filepath.Join(filepath.Dir(s.Root), "cp-much")
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	files := map[string][]byte{"big": random(8 << 20), "empty": nil}
	for i := range 30 {
		files[fmt.Sprintf("tree/%d/%d", i%3, i)] = random(1000 * i)
	}
	for name, content := range files {
		file := filepath.Join(from, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, 0o644)); err != nil {
			return nil, err
		}
	}
	there := fmt.Sprintf("shell:/tmp/much-%d", s.fresh.Add(1))
	facts := []string{
		s.copyEnds(ctx, "into the container", from, there),
		s.copyEnds(ctx, "out of the container", there, to),
	}
	same := 0
	for name, content := range files {
		back, err := os.ReadFile(filepath.Join(to, name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Equal(back, content) {
			continue
		}
		if err != nil {
			return nil, err
		}
		same++
	}
	return append(facts, fmt.Sprintf("cp: %d of %d files came back as they were", same, len(files))), nil
}

func (s *side) copyEnds(ctx context.Context, what, from, to string) string {
	cmd, err := s.cp.KubectlCommand(ctx, "--namespace="+s.ns, "cp", "-c=main", from, to)
	if err != nil {
		return err.Error()
	}
	out, err := cmd.CombinedOutput()
	return fmt.Sprintf("cp %s: %s %q", what, ended(ctx, err), s.normalizer().Text(string(out)))
}

// together is how many connections are open at once.
const together = 100

// forwardsMany has many connections open at once and asks on each of them twice,
// fetches something big, and has a server that closes its half first.
func (s *side) forwardsMany(ctx context.Context, address string) []string {
	var open, done errgroup.Group
	conns := make([]*asking, together)
	for i := range conns {
		open.Go(func() (err error) {
			if conns[i], err = dialAsking(ctx, address); err != nil {
				return err
			}
			return conns[i].ask("/healthz")
		})
	}
	facts := []string{did(fmt.Sprintf("port-forward: %d connections at once", together), open.Wait())}
	for _, c := range conns {
		if c == nil {
			continue
		}
		done.Go(func() error { return errors.Join(c.ask("/healthz"), c.conn.Close()) })
	}
	facts = append(facts, did("port-forward: once more on each of them", done.Wait()))
	big, err := fetch(ctx, address, "/file?path=/hello")
	return append(facts, fmt.Sprintf("port-forward: the program is %d bytes with sum %x, %v", len(big), sha256.Sum256(big), err))
}

// asking is a connection for one request after the other.
type asking struct {
	conn   net.Conn
	reader *bufio.Reader
}

func dialAsking(ctx context.Context, address string) (*asking, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &asking{conn, bufio.NewReader(conn)}, conn.SetDeadline(time.Now().Add(usual))
}

func (a *asking) ask(path string) error {
	if _, err := fmt.Fprintf(a.conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		return err
	}
	resp, err := http.ReadResponse(a.reader, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

// fetch gets something on a connection of its own, whose end is the server's.
func fetch(ctx context.Context, address, path string) ([]byte, error) {
	a, err := dialAsking(ctx, address)
	if err != nil {
		return nil, err
	}
	defer a.conn.Close()
	if _, err := fmt.Fprintf(a.conn, "GET %s HTTP/1.0\r\n\r\n", path); err != nil {
		return nil, err
	}
	all, err := io.ReadAll(a.reader)
	_, body, _ := strings.Cut(string(all), "\r\n\r\n")
	return []byte(body), err
}

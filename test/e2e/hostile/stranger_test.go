// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/ports"
)

// TestStrangers floods 10250, 10248 and the sockets of a node from outside it.
func TestStrangers(t *testing.T) {
	defer write(t)
	cp := harness.StartControlPlane(t)
	health := int32(ports.Loopback(t))
	n := harness.StartNode(t, harness.NodeOptions{ControlPlane: cp, Configure: func(c *kubeletv1beta1.KubeletConfiguration) {
		c.HealthzPort, c.HealthzBindAddress = &health, "127.0.0.1"
	}})
	p := newPods(t, cp, n)
	bystander := p.ready("bystander")
	// In turn, unless it is to be short, and then together.
	floods := []struct {
		name  string
		flood func(*stranger)
	}{
		{"large tokens", (*stranger).largeTokens},
		{"many tokens", (*stranger).manyTokens},
		{"certificates and long paths", (*stranger).longPaths},
		{"connections that say nothing", (*stranger).silence},
		{"handshakes that are none", (*stranger).rubbish},
		{"health checks", (*stranger).healthChecks},
		{"local users who knock", (*stranger).knocks},
	}
	for _, f := range floods {
		if testing.Short() {
			break
		}
		t.Run(f.name, func(t *testing.T) {
			endure(t, p, bystander, &stranger{t: t, n: n, health: health}, f.flood)
		})
	}
	t.Run("all at once", func(t *testing.T) {
		endure(t, p, bystander, &stranger{t: t, n: n, health: health}, func(s *stranger) {
			var all sync.WaitGroup
			for _, f := range floods {
				all.Go(func() { f.flood(s) })
			}
			all.Wait()
		})
	})
}

// endure lets a flood go on for its time and looks at the node meanwhile and after.
func endure(t *testing.T, p *pods, bystander string, s *stranger, flood func(*stranger)) {
	t.Helper()
	b := limited(t, p.n)
	ctx, cancel := context.WithTimeout(t.Context(), *flooding)
	defer cancel()
	s.ctx = ctx
	over := make(chan struct{})
	go func() {
		flood(s)
		close(over)
	}()
	up, gone := p.fresh("meanwhile", 2*time.Minute)
	<-over
	if s.sent.Load() == 0 {
		t.Error("the flood sent nothing: the test sees nothing")
	}
	sent := s.sent.Load()
	// Who is known is answered again at once.
	client := harness.Unverified(p.cp.ClientCertificate(t, "admin", "system:masters"))
	harness.Eventually(t, 3*time.Minute, "an answer to who is known", func(ctx context.Context) error {
		code, err := get(ctx, client, s.url("/pods"))
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d", code)
		}
		return err
	})
	p.fresh("after", time.Minute)
	p.steady(bystander)
	fullest, logs := b.judge(t)
	_, name, _ := strings.Cut(t.Name(), "/")
	results = append(results, result{strings.ReplaceAll(name, "_", " "), sent, up, gone, fullest, logs})
}

// stranger is somebody without credentials of the cluster.
type stranger struct {
	t      *testing.T
	n      *harness.Node
	health int32
	ctx    context.Context // ends with the flood
	sent   atomic.Int64
}

func (s *stranger) url(path string) string {
	return "https://" + net.JoinHostPort(s.n.IP, strconv.Itoa(s.n.Port)) + path
}

// often calls f from many goroutines until the flood is over. What it returns does
// not matter: the node may refuse, or hang up.
func (s *stranger) often(goroutines int, f func() error) {
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for s.ctx.Err() == nil {
				if err := f(); err != nil {
					select { // hung up on: not in a busy loop
					case <-s.ctx.Done():
					case <-time.After(10 * time.Millisecond):
					}
				}
				s.sent.Add(1)
			}
		})
	}
	all.Wait()
}

// client speaks HTTP/2 over so many connections.
func client(connections int, certificate *tls.Certificate) *http.Client {
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // a stranger's
	if certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, MaxConnsPerHost: connections}}
}

func get(ctx context.Context, client *http.Client, url string, header ...string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

// tokens sends bearer tokens of a size, each another one.
func (s *stranger) tokens(size int) {
	pad, c := strings.Repeat("A", size), client(4, nil)
	s.often(1000, func() error {
		b := make([]byte, 8)
		if _, err := rand.Read(b); err != nil {
			return err
		}
		_, err := get(s.ctx, c, s.url("/pods"), "Authorization", "Bearer "+hex.EncodeToString(b)+pad)
		return err
	})
}

func (s *stranger) largeTokens() { s.tokens(1<<20 - 1<<13) }
func (s *stranger) manyTokens()  { s.tokens(8 << 10) }

// longPaths come with a certificate that only its owner vouches for.
func (s *stranger) longPaths() {
	certificate, err := harness.SelfSigned("stranger")
	if err != nil {
		s.t.Error(err)
		return
	}
	long, medium := s.url("/pods/"+strings.Repeat("%22", 300_000)), s.url("/pods/"+strings.Repeat("%0a", 10_000))
	c := client(4, certificate)
	s.often(32, func() error {
		_, err := get(s.ctx, c, long)
		_, second := get(s.ctx, c, medium)
		return errors.Join(err, second)
	})
}

// silence opens connections and keeps them, some in the midst of a handshake, some
// after it.
func (s *stranger) silence() {
	address := net.JoinHostPort(s.n.IP, strconv.Itoa(s.n.Port))
	var mu sync.Mutex
	var kept []net.Conn
	defer func() {
		for _, c := range kept {
			_ = c.Close() // hung up on, perhaps
		}
	}()
	s.often(8, func() error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(s.ctx, "tcp", address)
		if err != nil {
			return err
		}
		mu.Lock()
		kept = append(kept, conn)
		if len(kept) > 4000 { // as many as the test may have open
			_ = kept[0].Close() // the node may have
			kept = kept[1:]
		}
		odd := len(kept)%2 == 1
		mu.Unlock()
		if odd {
			_, err = conn.Write([]byte{0x16, 3, 1})
			return err
		}
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // a stranger's
	})
}

// rubbish is written where a handshake or a request is wanted.
func (s *stranger) rubbish() {
	addresses := []string{net.JoinHostPort(s.n.IP, strconv.Itoa(s.n.Port)), fmt.Sprintf("127.0.0.1:%d", s.health)}
	s.often(8, func() error {
		var errs []error
		for _, address := range addresses {
			conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(s.ctx, "tcp", address)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			_ = conn.SetDeadline(time.Now().Add(time.Second)) // on a socket
			b := make([]byte, 1<<12)
			_, err = rand.Read(b)
			_, write := conn.Write(append([]byte("GET /"), bytes.Repeat(b, 16)...))
			errs = append(errs, err, write, conn.Close())
		}
		return errors.Join(errs...)
	})
}

// healthChecks are long ones.
func (s *stranger) healthChecks() {
	c := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 64}}
	url := fmt.Sprintf("http://127.0.0.1:%d/", s.health)
	long := strings.Repeat("x", 500_000)
	s.often(64, func() error {
		_, err := get(s.ctx, c, url+long)
		_, second := get(s.ctx, c, url+"healthz", "Cookie", long)
		return errors.Join(err, second)
	})
}

// asKnocker in the environment makes the test's binary a process that connects to
// each socket below a run directory until it is killed.
const asKnocker = "SEXTANT_TEST_KNOCK"

// knocks come from a local user of no service.
func (s *stranger) knocks() {
	self, err := os.Executable()
	if err != nil {
		s.t.Error(err)
		return
	}
	// Where the go tool puts the test's binary only root may look.
	program := filepath.Join(filepath.Dir(s.n.Run), "knocker")
	if out, err := exec.CommandContext(s.ctx, "install", "-m", "0755", self, program).CombinedOutput(); err != nil {
		s.t.Errorf("%v: %s", err, out)
		return
	}
	cmd := exec.CommandContext(s.ctx, program)
	cmd.Env, cmd.Dir = []string{asKnocker + "=" + s.n.Run}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); s.ctx.Err() == nil {
		s.t.Errorf("the knocker ended: %v", err)
	}
	s.sent.Add(int64(out.Len()))
	if err := os.Remove(program); err != nil {
		s.t.Error(err)
	}
}

// knock is the knocker: it prints a byte for every thousand connections.
func knock(run string) {
	paths := house.Paths{Run: run}
	sockets := []string{paths.Broker(), paths.Supervisor()}
	for _, s := range house.Services() {
		sockets = append(sockets, paths.Socket(s), paths.DebugSocket(s))
	}
	for i := 0; ; i++ {
		if conn, err := net.Dial("unix", sockets[i%len(sockets)]); err == nil {
			_ = conn.Close() // hung up on
		}
		if i%1000 == 0 {
			fmt.Print(".")
		}
	}
}

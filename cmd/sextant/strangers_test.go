// SPDX-License-Identifier: Apache-2.0

//go:build !race

// The race detector takes several times the memory that is measured here: make test
// runs these tests without it (make hostile).

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/test/ports"
	"github.com/sextant-node/sextant/test/standin"
)

// slowAPI is config in front of an API server that takes its time over a review.
type slowAPI struct {
	configv1.UnimplementedConfigServiceServer
	under, most, reviews atomic.Int64
}

func (s *slowAPI) ReviewToken(ctx context.Context, req *configv1.ReviewTokenRequest) (*configv1.ReviewTokenResponse, error) {
	s.reviews.Add(1)
	defer s.under.Add(-1)
	if now := s.under.Add(1); now > s.most.Load() {
		s.most.Store(now)
	}
	review := &authenticationv1.TokenReview{}
	if err := review.Unmarshal(req.GetReview()); err != nil {
		return nil, err
	}
	if review.Spec.Token == "known" {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "known"}}
	} else {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	data, err := review.Marshal()
	return &configv1.ReviewTokenResponse{Review: data}, err
}

// besieged is nodeapi as a process, with the environment and within the limits of
// its unit.
type besieged struct {
	*standin.House
	api     *slowAPI
	address string
	process *exec.Cmd
	log     *os.File
	limit   int64 // MemoryMax, in bytes
}

func newBesieged(t *testing.T) *besieged {
	t.Helper()
	unit, err := os.ReadFile("../../deploy/systemd/sextant-nodeapi.service")
	if err != nil {
		t.Fatal(err)
	}
	memory := regexp.MustCompile(`(?m)^MemoryMax=(\d+)M$`).FindSubmatch(unit)
	soft := regexp.MustCompile(`(?m)^Environment=.*(GOMEMLIMIT=\S+)`).FindSubmatch(unit)
	if memory == nil || soft == nil {
		t.Fatal("the unit of nodeapi has no limit of memory")
	}
	standin.Limit = 10 * time.Minute // all of the sieges, under the race detector
	b := &besieged{House: standin.NewQuiet(t), api: &slowAPI{}}
	mebibytes, _ := strconv.Atoi(string(memory[1]))
	b.limit = int64(mebibytes) << 20
	port := ports.Loopback(t)
	b.address = fmt.Sprintf("127.0.0.1:%d", port)
	config := b.Kit(house.Config)
	kubelet := service.Owner(config, house.ConfigKubelet)
	configv1.RegisterConfigServiceServer(config.Server, b.api)
	b.Start(config)
	yes, no := true, false
	conf := &kubeletconfig.Config{Kubelet: kubeletv1beta1.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: kubeletconfig.APIVersion, Kind: kubeletconfig.Kind},
		Address:  "127.0.0.1", Port: int32(port),
		Authentication: kubeletv1beta1.KubeletAuthentication{
			Webhook:   kubeletv1beta1.KubeletWebhookAuthentication{Enabled: &yes, CacheTTL: metav1.Duration{Duration: 2 * time.Minute}},
			Anonymous: kubeletv1beta1.KubeletAnonymousAuthentication{Enabled: &no},
		},
		Authorization: kubeletv1beta1.KubeletAuthorization{Mode: kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow},
	}, Node: kubeletconfig.Node{Name: "n1", CertDir: t.TempDir()}}
	standin.SetKubelet(b.House, kubelet, conf)
	if b.log, err = os.Create(filepath.Join(t.TempDir(), "log")); err != nil {
		t.Fatal(err)
	}
	b.process = exec.Command(os.Args[0], "run", "nodeapi", "--node-name=n1", "--run-dir="+b.Paths.Run, "--state-dir="+b.Paths.State, "--bus=off")
	b.process.Env = append(os.Environ(), program+"=1", string(soft[1]))
	b.process.Stdout, b.process.Stderr = b.log, b.log
	b.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.process.Process.Kill() // it may have ended
		_ = b.process.Wait()         // killed
		if text, err := os.ReadFile(b.log.Name()); t.Failed() {
			t.Logf("%v: %.4000s", err, text)
		}
	})
	known := b.client("127.0.0.1", true)
	b.Eventually("a caller whom the API server knows is served", func() bool { return b.get(known, "known") == http.StatusOK })
	return b
}

// client is a caller at an address of loopback.
func (b *besieged) client(ip string, keep bool) *http.Client {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableKeepAlives: !keep, MaxConnsPerHost: 1,
		DialContext: dialer(ip).DialContext,
	}
	b.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func dialer(ip string) *net.Dialer { return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}} }

// get asks for pods with a token; the code is 0 if there was no answer.
func (b *besieged) get(client *http.Client, token string) (code int) {
	req, err := http.NewRequestWithContext(b.House.Context(), http.MethodGet, "https://"+b.address+"/pods", nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// peak is the most memory the process had so far, in bytes.
func (b *besieged) peak() int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.process.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	found := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(text)
	if found == nil {
		b.Fatalf("no VmHWM: the process has ended:\n%s", text)
	}
	kib, _ := strconv.ParseInt(string(found[1]), 10, 64)
	return kib << 10
}

// raw are connections on which a stranger says something, and then nothing more and
// reads nothing: for as long as they are not hung up on.
func (b *besieged) raw(many int, protocol string, say func(conn net.Conn)) {
	var all sync.WaitGroup
	open := make(chan struct{}, 50) // as many at a time
	for i := range many {
		open <- struct{}{}
		all.Go(func() {
			defer func() { <-open }()
			conn, err := dialer(fmt.Sprintf("127.0.0.%d", 2+i%4)).DialContext(b.House.Context(), "tcp", b.address)
			if err != nil {
				return // it was closed before it began
			}
			b.Cleanup(func() { _ = conn.Close() })
			_ = conn.SetDeadline(time.Now().Add(time.Minute)) // on a socket
			if protocol != "" {
				secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
				if secure.Handshake() != nil {
					return
				}
				conn = secure
			}
			say(conn)
		})
	}
	all.Wait()
}

// preface begins HTTP/2.
func preface(conn net.Conn) *http2.Framer {
	_, _ = io.WriteString(conn, http2.ClientPreface) // hung up on, perhaps: here and below
	framer := http2.NewFramer(conn, conn)
	_ = framer.WriteSettings()
	return framer
}

// fields are the headers of a request in HPACK.
func fields(more func(*hpack.Encoder)) []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/pods"}, {":authority", "x"}} {
		_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to memory
	}
	more(e)
	return block.Bytes()
}

// request opens a stream, in as many frames as it takes.
func request(f *http2.Framer, stream uint32, block []byte, whole bool) {
	const most = 16 << 10
	first := block[:min(len(block), most)]
	block = block[len(first):]
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndStream: true, EndHeaders: whole && len(block) == 0})
	for len(block) > 0 {
		part := block[:min(len(block), most)]
		block = block[len(part):]
		_ = f.WriteContinuation(stream, whole && len(block) == 0, part)
	}
}

// TestStrangersTakeNoMemory: without credentials, from a few addresses, with as many
// connections as they like: the process stays within the limit of its unit, asks
// config for a bounded number of reviews at a time, and serves who is known.
func TestStrangersTakeNoMemory(t *testing.T) {
	b := newBesieged(t)
	known := b.client("127.0.0.1", true)
	token := func(i, size int) string { return fmt.Sprintf("%d-%s", i, strings.Repeat("A", size)) }
	floodOf := func(size int) func() {
		return func() {
			var all sync.WaitGroup
			for c := range 4 {
				client := b.client(fmt.Sprintf("127.0.0.%d", 2+c), true)
				for i := range 250 {
					all.Go(func() { b.get(client, token(1000*c+i, size)) })
				}
			}
			all.Wait()
		}
	}
	tiny := func(e *hpack.Encoder) { // once in the table, a byte each
		for range 60 << 10 / 34 {
			_ = e.WriteField(hpack.HeaderField{Name: "a", Value: "b"})
		}
	}
	sieges := []struct {
		name string
		lay  func()
	}{
		{"tokens of a megabyte", floodOf(1 << 20)},
		{"tokens of 60 KiB", floodOf(60 << 10)},
		{"tokens that may be", floodOf(15 << 10)},
		{"handshakes that stall", func() {
			hello := append([]byte{22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff}, make([]byte, 16<<10-4)...)
			b.raw(1100, "", func(conn net.Conn) { _, _ = conn.Write(hello) })
		}},
		{"headers that do not end", func() {
			var headers strings.Builder
			for i := range 60 << 10 / 8 {
				fmt.Fprintf(&headers, "a%04x:\r\n", i)
			}
			b.raw(1100, "http/1.1", func(conn net.Conn) { _, _ = io.WriteString(conn, "GET /pods HTTP/1.1\r\nHost: x\r\n"+headers.String()) })
		}},
		{"large frames", func() {
			b.raw(1100, "h2", func(conn net.Conn) {
				preface(conn)
				_, _ = conn.Write([]byte{0x0f, 0xff, 0xff, 0, 0, 0, 0, 0, 1})
			})
		}},
		{"streams that nobody reads", func() {
			block := fields(func(e *hpack.Encoder) {
				_ = e.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("x", 50<<10)})
			})
			b.raw(60, "h2", func(conn net.Conn) {
				f := preface(conn)
				for i := range 100 {
					request(f, uint32(2*i+1), block, true)
				}
			})
		}},
		{"many small headers", func() {
			block := fields(tiny)
			b.raw(200, "h2", func(conn net.Conn) {
				f := preface(conn)
				for i := range 20 {
					request(f, uint32(2*i+1), block, i < 19)
				}
			})
		}},
		{"bodies that nobody asked for", func() {
			block := fields(func(e *hpack.Encoder) {
				_ = e.WriteField(hpack.HeaderField{Name: "authorization", Value: "Bearer slow"})
			})
			body := make([]byte, 16<<10)
			b.raw(200, "h2", func(conn net.Conn) {
				f := preface(conn)
				for i := range 4 {
					_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block, EndHeaders: true})
					for range 4 {
						_ = f.WriteData(uint32(2*i+1), false, body)
					}
				}
			})
		}},
	}
	for _, siege := range sieges {
		over, answered := make(chan struct{}), 0
		go func() {
			siege.lay()
			close(over)
		}()
		for ended := false; !ended; answered++ {
			select {
			case <-over:
				ended = true // and one more answer
			default:
			}
			if code := b.get(known, "known"); code != http.StatusOK {
				t.Fatalf("%s: a caller who is known got %d", siege.name, code)
			}
		}
		t.Logf("%s: %d MiB at most so far, %d answers meanwhile, %d reviews", siege.name, b.peak()>>20, answered, b.api.reviews.Load())
	}
	if peak := b.peak(); peak > b.limit {
		t.Errorf("it took %d MiB, its unit has %d", peak>>20, b.limit>>20)
	}
	if most := b.api.most.Load(); most > 64 {
		t.Errorf("%d reviews at a time", most)
	}
}

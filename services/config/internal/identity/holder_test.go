// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sextant-node/sextant/services/config/internal/cluster"
)

const (
	hour = time.Hour
	year = 365 * 24 * time.Hour
)

// rig is a holder between a folder and a signer, each with a clock of its own.
type rig struct {
	*testing.T
	*signer
	dir      string
	settings Settings
	holder   *Holder
	changed  chan struct{}
	errors   atomic.Int64
	// ahead is how far the node's clock and the signer's are ahead of the real one.
	ahead, signerAhead atomic.Int64
	stop               func()
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, dir: t.TempDir()}
	r.signer = newSigner(t, func() time.Time { return time.Now().Add(time.Duration(r.signerAhead.Load())) })
	r.settings = Settings{
		Kubeconfig: filepath.Join(r.dir, "kubelet.conf"), Bootstrap: filepath.Join(r.dir, "bootstrap.conf"),
		Dir: filepath.Join(r.dir, "pki"), Node: "n1", Rotate: true,
	}
	r.write("bootstrap.conf", r.kubeconfig("token: boot"))
	return r
}

func (r *rig) write(name, text string) {
	r.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.Fatal(err)
	}
}

// start runs a holder; stop ends it, as kill -9 would.
func (r *rig) start() {
	r.Helper()
	r.changed = make(chan struct{}, 1)
	changed := r.changed
	r.resume(New(Config{
		Changed:    func(*Held) { poke(changed) },
		RenewError: func() { r.errors.Add(1); poke(changed) },
		Now:        func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) },
		UserAgent:  "test", Log: slog.New(slog.DiscardHandler),
	}))
}

// resume runs a holder, also one that was stopped.
func (r *rig) resume(holder *Holder) {
	r.holder = holder
	holder.Configure(r.settings)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- holder.Run(ctx) }()
	r.stop = func() {
		if cancel != nil {
			cancel()
			cancel = nil
			if err := <-done; err != nil {
				r.Error(err)
			}
		}
	}
	r.Cleanup(r.stop)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// eventually waits for the holder to come to what is told.
func (r *rig) eventually(what string, is func() bool) {
	r.Helper()
	limit := time.After(time.Minute)
	for !is() {
		select {
		case <-r.changed:
		case <-limit:
			held, _, err := r.holder.Held()
			r.Fatalf("not so: %s; held %v, %v, trouble %q", what, held != nil, err, r.holder.Trouble().Text)
		}
	}
}

// step stops the holder and lets it look once more, so that what it does not do
// can be seen.
func (r *rig) step() {
	r.stop()
	r.holder.step(r.Context())
	r.holder.stopAsking()
}

// jump moves the node's clock.
func (r *rig) jump(to time.Duration) {
	r.ahead.Store(int64(to))
	r.holder.wake.Send()
}

// works reports whether the API server accepts the credential, and tells the
// holder what it said, as a watch of pods would.
func (r *rig) works() bool {
	held, _, _ := r.holder.Held()
	if held == nil {
		return false
	}
	client, closing, err := cluster.Settings{UserAgent: "test"}.Client(held.Kubeconfig)
	if err != nil {
		r.Fatal(err)
	}
	defer closing()
	_, err = client.CertificatesV1().CertificateSigningRequests().List(r.Context(), metav1.ListOptions{})
	r.holder.Heard(err)
	return err == nil
}

func (r *rig) expires() time.Time {
	if held, _, _ := r.holder.Held(); held != nil {
		return held.Expires
	}
	return time.Time{}
}

func (r *rig) requests() int {
	r.signer.mu.Lock()
	defer r.signer.mu.Unlock()
	return len(r.users)
}

// TestBootstrap: the first certificate, over a kill while it waits, in the
// kubelet's files.
func TestBootstrap(t *testing.T) {
	r := newRig(t)
	r.set(func(s *signer) { s.approve = false })
	r.start()
	waits := func() bool {
		trouble := r.holder.Trouble()
		return trouble.Waiting && strings.Contains(trouble.Text, "node-csr-") && strings.Contains(trouble.Text, "approved")
	}
	r.eventually("it waits for the approval", waits)
	r.stop()
	r.start()
	r.eventually("it waits for the same request", waits)
	if n := r.requests(); n != 1 {
		t.Errorf("%d requests", n)
	}
	r.set(func(s *signer) { s.approve = true })
	r.eventually("the certificate works", r.works)
	if trouble := r.holder.Trouble(); trouble.Text != "" {
		t.Errorf("trouble %q", trouble.Text)
	}
	target, err := os.Readlink(filepath.Join(r.settings.Dir, "kubelet-client-current.pem"))
	if err != nil || !strings.HasPrefix(filepath.Base(target), "kubelet-client-20") {
		t.Errorf("current is %s, %v", target, err)
	}
	if _, err := os.Stat(filepath.Join(r.settings.Dir, "kubelet-client.key.tmp")); !os.IsNotExist(err) {
		t.Errorf("the key of the request: %v", err)
	}
	held, changed, _ := r.holder.Held()
	// The kubeconfig that is published then changes nothing.
	r.write("kubelet.conf", r.kubeconfig("client-certificate: pki/kubelet-client-current.pem, client-key: pki/kubelet-client-current.pem"))
	r.step()
	if again, _, _ := r.holder.Held(); string(again.Kubeconfig) != string(held.Kubeconfig) {
		t.Error("another credential")
	}
	select {
	case <-changed:
		t.Error("connections are made anew for nothing")
	default:
	}
	// A restart asks for nothing.
	r.stop()
	r.start()
	r.eventually("the certificate works", r.works)
	if n := r.requests(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestRenewal: asked for as the node when it is due.
func TestRenewal(t *testing.T) {
	r := newRig(t)
	r.start()
	r.eventually("the first certificate", r.works)
	first := r.expires()
	r.signerAhead.Store(int64(95 * hour))
	r.jump(95 * hour)
	r.eventually("the second certificate", func() bool { return r.expires().After(first) && r.works() })
	if got := fmt.Sprint(r.users); got != "[boot system:node:n1]" {
		t.Errorf("asked as %s", got)
	}
}

// TestExpiredOffline: expired while the API server was away; the bootstrap
// kubeconfig brings the node back, or it is said that there is none.
func TestExpiredOffline(t *testing.T) {
	r := newRig(t)
	r.start()
	r.eventually("the first certificate", r.works)
	first := r.expires()
	r.set(func(s *signer) { s.away = true })
	r.signerAhead.Store(int64(200 * hour))
	r.jump(200 * hour)
	r.eventually("it is said", func() bool { return strings.HasPrefix(r.holder.Trouble().Text, "client certificate expired at") })
	r.eventually("it is tried", func() bool { return r.errors.Load() > 0 })
	r.set(func(s *signer) { s.away, s.noToken = false, true })
	tried := r.errors.Load()
	r.eventually("the token is no good: it is said", func() bool {
		return r.errors.Load() > tried && strings.Contains(r.holder.Trouble().Text, "Unauthorized")
	})
	r.set(func(s *signer) { s.noToken = false })
	r.eventually("it works again", func() bool { return r.expires().After(first) && r.works() })
	if trouble := r.holder.Trouble(); trouble.Text != "" {
		t.Errorf("trouble %q", trouble.Text)
	}
}

// TestClockJumps: a year ahead and back, a year back and ahead.
func TestClockJumps(t *testing.T) {
	r := newRig(t)
	r.start()
	r.eventually("the first certificate", r.works)
	r.jump(year)
	r.eventually("the clock is doubted", func() bool { return strings.Contains(r.holder.Trouble().Text, "the clock is ahead") })
	asked := r.requests()
	if !r.works() {
		t.Error("the certificate does not work while the clock is wrong")
	}
	r.step()
	if n := r.requests(); n != asked {
		t.Errorf("asked again %d times", n-asked)
	}
	r.start()
	r.jump(0)
	r.eventually("all is well", func() bool { return r.holder.Trouble().Text == "" && r.works() })
	r.jump(-year)
	r.eventually("the clock is behind", func() bool { return strings.Contains(r.holder.Trouble().Text, "the clock is behind") })
	r.jump(0)
	r.eventually("all is well", func() bool { return r.holder.Trouble().Text == "" && r.works() })
	if n := r.requests(); n != asked {
		t.Errorf("asked again %d times", n-asked)
	}
}

// TestRefused: the API server does not know the certificate any more.
func TestRefused(t *testing.T) {
	r := newRig(t)
	r.start()
	r.eventually("the first certificate", r.works)
	first := r.expires()
	unauthorized := apierrors.NewUnauthorized("who are you")
	r.holder.Heard(apierrors.NewGenericServerResponse(http.StatusUnauthorized, "get", schema.GroupResource{}, "", "log in", 0, true))
	r.holder.mu.Lock()
	if len(r.holder.refusals) != 0 {
		t.Error("the refusal of a proxy was taken for the API server's")
	}
	r.holder.mu.Unlock()
	r.holder.Heard(unauthorized)
	r.holder.Heard(nil) // it was a moment only
	r.jump(time.Minute)
	r.step()
	if n := r.requests(); n != 1 {
		t.Fatalf("%d requests after one refusal", n)
	}
	r.start()
	r.eventually("the certificate again", r.works)
	r.holder.Heard(unauthorized)
	r.signerAhead.Store(int64(2 * time.Minute))
	r.jump(2 * time.Minute)
	r.eventually("another certificate", func() bool { return r.expires().After(first) && r.works() })
}

// TestDenied: somebody says no; the next request is another one, later.
func TestDenied(t *testing.T) {
	r := newRig(t)
	r.set(func(s *signer) { s.deny = true })
	r.start()
	r.eventually("it is said", func() bool { return strings.Contains(r.holder.Trouble().Text, "denied") })
	r.set(func(s *signer) { s.deny = false })
	again := r.holder
	r.step()
	if n := r.requests(); n != 1 {
		t.Errorf("%d requests", n)
	}
	r.resume(again)
	r.jump(retryDenied)
	r.eventually("the certificate works", r.works)
	if n := r.requests(); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// TestAsGiven: a token is used as it is, and followed when its file changes;
// nothing is asked for.
func TestAsGiven(t *testing.T) {
	r := newRig(t)
	r.settings.Bootstrap = ""
	r.start()
	r.eventually("it waits for the file", func() bool { return strings.Contains(r.holder.Trouble().Text, "no such file") })
	r.write("token", "wrong\n")
	r.write("kubelet.conf", r.kubeconfig("tokenFile: token"))
	r.eventually("the credential is there", func() bool { held, _, _ := r.holder.Held(); return held != nil })
	if r.works() {
		t.Error("the wrong token works")
	}
	r.write("token", "boot\n")
	r.eventually("the token works", r.works)
	r.write("kubelet.conf", "{")
	r.step()
	if !r.works() {
		t.Error("nonsense in the file takes the credential away")
	}
	if n := r.requests(); n != 0 {
		t.Errorf("%d requests", n)
	}
	if !r.expires().IsZero() {
		t.Error("a token has an end")
	}
}

// TestAnonymous: with rotation and nothing to ask with, a kubeconfig without a
// user is used as it is.
func TestAnonymous(t *testing.T) {
	r := newRig(t)
	r.settings.Bootstrap = ""
	r.write("kubelet.conf", r.kubeconfig(""))
	r.start()
	r.eventually("it is used", func() bool { held, _, _ := r.holder.Held(); return held != nil && r.holder.Trouble().Text == "" })
}

// TestStandalone: without a kubeconfig there is nothing to hold, and nothing
// wrong.
func TestStandalone(t *testing.T) {
	r := newRig(t)
	r.settings.Kubeconfig = ""
	r.start()
	r.holder.wake.Send()
	r.stop()
	if held, _, err := r.holder.Held(); held != nil || err != nil || r.holder.Trouble().Text != "" || r.requests() != 0 {
		t.Errorf("held %v, %v, %q", held, err, r.holder.Trouble().Text)
	}
}

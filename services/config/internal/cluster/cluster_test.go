package cluster

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sextant-node/sextant/services/config/internal/apitest"
)

type rig struct {
	sessions chan *kubernetes.Clientset // each client made
	ended    chan struct{}              // each session's end
	reports  chan error
	nonsense chan struct{} // each log line about a file that is of no use
}

// Write is the log.
func (r *rig) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("former stay")) {
		r.nonsense <- struct{}{}
	}
	return len(line), nil
}

func run(t *testing.T, kubeconfig string) *rig {
	r := &rig{sessions: make(chan *kubernetes.Clientset, 10), ended: make(chan struct{}, 10), reports: make(chan error, 10), nonsense: make(chan struct{}, 10)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{
			Settings: Settings{Kubeconfig: kubeconfig, QPS: 50, Burst: 100, ContentType: "application/vnd.kubernetes.protobuf", UserAgent: "test"},
			Report:   func(err error) { r.reports <- err },
			Log:      slog.New(slog.NewTextHandler(r, nil)),
			Use: func(ctx context.Context, client *kubernetes.Clientset) {
				r.sessions <- client
				<-ctx.Done()
				r.ended <- struct{}{}
			},
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func receive[T any](t *testing.T, from chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("no %s", what)
		panic("not reached")
	}
}

func TestCredentialsComeAndChange(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kubeconfig")
	r := run(t, path)
	if err := receive(t, r.reports, "report"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Fatalf("report %v", err)
	}

	first := apitest.New(t)
	first.Kubeconfig(t, dir)
	client := receive(t, r.sessions, "client")
	for err := range r.reports { // perhaps one more for a file half written
		if err == nil {
			break
		}
	}
	if _, err := client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}

	// Another server in the same file.
	second := apitest.New(t)
	second.Kubeconfig(t, dir)
	receive(t, r.ended, "end of the session")
	client = receive(t, r.sessions, "second client")
	if _, err := client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if first.Requests("list services") != 1 || second.Requests("list services") != 1 {
		t.Errorf("lists: %d at the first, %d at the second", first.Requests("list services"), second.Requests("list services"))
	}

	// Nonsense leaves the session as it is, until there is something better.
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	receive(t, r.nonsense, "warning")
	if len(r.ended) > 0 {
		t.Error("nonsense ended the session")
	}
	first.Kubeconfig(t, dir)
	receive(t, r.ended, "end of the second session")
	receive(t, r.sessions, "third client")
}

func TestConnect(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeconfig := func(cluster, user string) string {
		return `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"` + cluster + `}}], users: [{name: u, user: {` + user + `}}],
contexts: [{name: c, context: {cluster: c, user: u}}]}`
	}
	write("bad.pem", "no certificate")
	cases := map[string]struct{ text, err string }{
		"no credentials needed": {kubeconfig("", ""), ""},
		"missing certificate":   {kubeconfig("", "client-certificate: nowhere.pem, client-key: nowhere.pem"), "nowhere.pem"},
		"missing CA":            {kubeconfig(", certificate-authority: nowhere.pem", ""), "nowhere.pem"},
		"CA is no certificate":  {kubeconfig(", certificate-authority: bad.pem", ""), "root certificates"},
		"no context":            {`{apiVersion: v1, kind: Config}`, "no configuration"},
		"unknown context":       {`{apiVersion: v1, kind: Config, current-context: x}`, "context: x"},
		"empty":                 {``, "no configuration"},
		"not YAML":              {`{`, "kubeconfig"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			settings := Settings{Kubeconfig: write("k", c.text)}
			_, err := settings.client(settings.read())
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}

	// The sum follows the CA's file as well as the kubeconfig.
	tls := httptest.NewTLSServer(nil)
	defer tls.Close()
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: tls.Certificate().Raw}))
	write("ca.pem", authority)
	path := write("k", kubeconfig(", certificate-authority: ca.pem", ""))
	sum := func() (s [32]byte) {
		c, err := Settings{Kubeconfig: path}.read()
		if err != nil {
			t.Fatal(err)
		}
		return c.sum
	}
	one := sum()
	if sum() != one {
		t.Error("sum differs without a change")
	}
	write("ca.pem", "# renewed\n"+authority)
	if sum() == one {
		t.Error("sum is the same with another CA")
	}
}

// TestUselessCredentialsAreLeftAlone: what cannot work is tried once, not in a
// loop, until the files change.
func TestUselessCredentialsAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority: bad.pem}}],
users: [{name: u}], contexts: [{name: c, context: {cluster: c, user: u}}]}`
	for name, content := range map[string]string{"bad.pem": "no certificate", "kubeconfig": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := run(t, path)
	if err := receive(t, r.reports, "report"); err == nil {
		t.Fatal("a client without a usable CA")
	}
	server := apitest.New(t)
	server.Kubeconfig(t, dir)
	receive(t, r.sessions, "client")
	if n := len(r.reports); n > 3 {
		t.Errorf("%d more reports: tried in a loop", n)
	}
}

func TestText(t *testing.T) {
	refused := errors.New("connect: connection refused")
	for want, err := range map[string]error{
		"":                            nil,
		"connect: connection refused": fmt.Errorf("list: %w - and a former one", &url.Error{Op: "Get", URL: "https://x?n=1", Err: refused}),
		"forbidden":                   errors.New("forbidden"),
	} {
		if got := Text(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
	statusv1 "github.com/sextant-node/sextant/proto/sextant/status/v1"
	"github.com/sextant-node/sextant/test/standin"
)

func TestHealthz(t *testing.T) {
	r := newRig(t, alwaysAllow)
	working := "[+]ping ok\n[+]log ok\n[+]syncloop ok\n[+]device-plugin ok\nhealthz check passed\n"
	if a := r.get("/healthz"); a.code != 200 || a.body != "ok" || a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("plain: %+v", a)
	}
	expect(t, "verbose", r.get("/healthz?verbose"), 200, working)
	expect(t, "exclude", r.get("/healthz?verbose&exclude=log"), 200, "[+]log excluded: ok\n")
	expect(t, "exclude what is not there", r.get("/healthz?verbose&exclude=none"), 200, "warn: some health checks cannot be excluded: no matches for \"none\"\n")
	for _, check := range []string{"ping", "log", "syncloop", "device-plugin"} {
		expect(t, check, r.get("/healthz/"+check), 200, "ok")
	}
	expect(t, "an unknown check", r.get("/healthz/none"), 404, "")
	expect(t, "another method", r.do(who{}, http.MethodPost, "/healthz"), 200, "ok")

	// A restart of podworker is no ill health; standing still is.
	r.stopWorker()
	expect(t, "without podworker", r.get("/healthz?verbose"), 200, working)
	r.ahead.Store(int64(6 * time.Minute))
	expect(t, "without podworker for long", r.get("/healthz"), 500, "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\n[-]device-plugin failed: reason withheld\nhealthz check failed")
	expect(t, "syncloop alone", r.get("/healthz/syncloop"), 500, "internal server error: podworker does not answer")
	expect(t, "excluded", r.get("/healthz?exclude=syncloop&exclude=device-plugin"), 200, "ok")
	expect(t, "ping alone", r.get("/healthz/ping"), 200, "ok")
	r.startWorker()
	r.Eventually("healthy again", func() bool { return r.get("/healthz/syncloop").code == 200 })
}

func TestLivezAndReadyz(t *testing.T) {
	r := newRig(t, alwaysAllow)
	// The rig has config, status and podworker, which do their work or say why not.
	expect(t, "livez", r.get("/livez"), 500, "[-]volume failed: reason withheld")
	absent := "exclude=bus&exclude=pleg&exclude=prober&exclude=volume&exclude=resource"
	expect(t, "livez without those", r.get("/livez?verbose&"+absent), 200, "[+]podworker ok\n[+]config ok\n")
	expect(t, "one", r.get("/livez/podworker"), 200, "ok")
	expect(t, "one that is not there", r.get("/livez/volume"), 500, "volume does not answer")
	expect(t, "no service", r.get("/livez/none"), 404, "")
	r.Eventually("podworker is ready", func() bool { return r.get("/readyz/podworker").code == 200 })
	r.Eventually("nodeapi is ready", func() bool { return r.get("/readyz/nodeapi").code == 200 })
	r.stopWorker()
	expect(t, "readyz tells at once", r.get("/readyz/podworker"), 500, "podworker does not answer")
	expect(t, "what the checks found", r.get("/metrics/slis"), 200, `kubernetes_healthcheck{name="volume",type="livez"} 0`)
	expect(t, "how often", r.get("/metrics/slis"), 200, `kubernetes_healthchecks_total{name="ping",status="success",type="livez"}`)
	expect(t, "reset", r.do(who{}, http.MethodDelete, "/metrics/slis"), 200, "metrics reset\n")
	if a := r.get("/metrics/slis"); a.code != 200 || strings.Contains(a.body, "kubernetes_healthcheck{") {
		t.Errorf("after the reset: %s", a.body)
	}
}

// TestHealthzPort: the local port is well once podworker answers and resource works, and
// from then on it is about nodeapi alone.
func TestHealthzPort(t *testing.T) {
	r := newRig(t, nil)
	expect(t, "without resource", r.plain(r.healthz, "/healthz"), 500, "the node has not started: resource does not answer")
	resource := r.Kit(house.Resource)
	stopResource := r.Start(resource)
	r.Eventually("resource answers", func() bool {
		return strings.HasPrefix(r.plain(r.healthz, "/healthz").body, "the node has not started: resource: ")
	})
	r.stopWorker()
	resource.Serving()
	expect(t, "without podworker", r.plain(r.healthz, "/healthz/ping"), 500, "the node has not started: podworker does not answer")
	r.startWorker()
	r.Eventually("started", func() bool { return r.plain(r.healthz, "/healthz").code == 200 })
	r.stopWorker()
	stopResource()
	for _, path := range []string{"/healthz", "/healthz/ping"} {
		if a := r.plain(r.healthz, path); a.code != 200 || a.body != "ok" {
			t.Errorf("%s: %d %q", path, a.code, a.body)
		}
	}
	for _, path := range []string{"/healthz/syncloop", "/pods", "/metrics", "/"} {
		if a := r.plain(r.healthz, path); a.code != 404 {
			t.Errorf("%s: %d %q", path, a.code, a.body)
		}
	}
}

func TestReadOnlyPort(t *testing.T) {
	r := newRig(t, nil)
	r.closes(r.readOnly)
	r.configure(func(c *kubeletconfig.Config) { c.Kubelet.ReadOnlyPort = r.readOnly })
	r.opens(r.readOnly)
	expect(t, "pods", r.plain(r.readOnly, "/pods"), 200, "PodList")
	expect(t, "healthz", r.plain(r.readOnly, "/healthz"), 200, "ok")
	expect(t, "slis", r.plain(r.readOnly, "/metrics/slis"), 200, `kubernetes_healthcheck{name="ping",type="healthz"} 1`)
	for _, path := range []string{"/containerLogs/ns/p/c", "/debug/pprof/", "/exec/ns/p/c", "/logs/", "/runningpods/"} {
		expect(t, path, r.plain(r.readOnly, path), 405, "Debug endpoints are disabled.\n")
	}
	for _, path := range []string{"/configz", "/checkpoint/ns/p/c", "/flagz", "/statusz", "/debug/flags/v", "/none"} {
		expect(t, path, r.plain(r.readOnly, path), 404, "")
	}
}

func TestPods(t *testing.T) {
	r := newRig(t, alwaysAllow)
	if a := r.get("/pods"); a.body != `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}` || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("no pods: %q, %s", a.body, a.header.Get("Content-Type"))
	}
	add := func(name, source string) {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
		p.Status.Phase = v1.PodPending
		data, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		status, err := (&v1.PodStatus{Phase: v1.PodRunning}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		standin.Set(r.House, r.statuses, name, &statusv1.PodReport{Uid: name, Status: status})
		standin.Set(r.House, r.pods, name, &configv1.DesiredPod{Pod: data, Source: source})
	}
	add("static", "file")
	add("api", "api")
	var list v1.PodList
	r.Eventually("both pods, and the static one's status", func() bool {
		list = v1.PodList{}
		if err := json.Unmarshal([]byte(r.get("/pods/").body), &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Items) == 2 && list.Items[1].Status.Phase == v1.PodRunning
	})
	if list.Items[0].Name != "api" || list.Items[0].Status.Phase != v1.PodPending || list.Items[1].Name != "static" {
		t.Errorf("pods %v", list.Items)
	}
}

// TestPodsWithStatusesApart: each answer has the statuses that config has then, and the
// last ones while config is away.
func TestPodsWithStatusesApart(t *testing.T) {
	r := newRig(t, alwaysAllow)
	version := 0
	marshal := func(spec bool) []byte {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p", ResourceVersion: strconv.Itoa(version)}}
		if spec {
			p.Spec.NodeName = "n1"
		}
		p.Status.Message = "of " + p.ResourceVersion
		data, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	listed := func() v1.Pod {
		list := v1.PodList{}
		if err := json.Unmarshal([]byte(r.get("/pods/").body), &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) == 0 {
			return v1.Pod{}
		}
		return list.Items[0]
	}
	standin.Set(r.House, r.pods, "p", &configv1.DesiredPod{Pod: marshal(true), Source: "api", StatusApart: true})
	r.Eventually("the pod, with the status it was listed with", func() bool { return listed().Status.Message == "of 0" })
	for range 3 {
		version++
		standin.Set(r.House, r.atAPI, "p", &configv1.Object{Object: marshal(false)})
		if p := listed(); p.Status.Message != "of "+p.ResourceVersion || p.ResourceVersion != strconv.Itoa(version) || p.Spec.NodeName != "n1" {
			t.Errorf("version %d: version %s, status %q, node %q", version, p.ResourceVersion, p.Status.Message, p.Spec.NodeName)
		}
	}
	r.stopNeighbours()
	if p := listed(); p.Status.Message != "of 3" {
		t.Errorf("without config: status %q", p.Status.Message)
	}
}

func TestConfigz(t *testing.T) {
	r := newRig(t, alwaysAllow)
	var got struct {
		KubeletConfig map[string]any
		Sextant       struct{ Generation uint64 }
	}
	a := r.get("/configz")
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{"apiVersion": kubeletconfig.APIVersion, "kind": kubeletconfig.Kind, "port": float64(r.port), "address": "127.0.0.1"} {
		if got.KubeletConfig[field] != want {
			t.Errorf("%s is %v, want %v", field, got.KubeletConfig[field], want)
		}
	}
	if got.Sextant.Generation != 1 {
		t.Errorf("generation %d of the first configuration", got.Sextant.Generation)
	}
	if a.header.Get("Content-Type") != "application/json" {
		t.Errorf("type %s", a.header.Get("Content-Type"))
	}
}

func TestDebuggingHandlersOff(t *testing.T) {
	r := newRig(t, func(c *kubeletconfig.Config) {
		alwaysAllow(c)
		off := false
		c.Kubelet.EnableDebuggingHandlers = &off
	})
	for _, path := range []string{"/run/ns/p/c", "/exec/ns/p/c", "/attach/ns/p/c", "/portForward/ns/p", "/containerLogs/ns/p/c", "/runningpods/", "/debug/pprof/", "/logs/", "/logs/x"} {
		expect(t, path, r.get(path), 405, "Debug endpoints are disabled.")
	}
	for _, path := range []string{"/configz", "/flagz", "/statusz", "/debug/flags/v", "/checkpoint/ns/p/c"} {
		expect(t, path, r.get(path), 404, "")
	}
	for _, path := range []string{"/pods", "/healthz", "/metrics"} {
		if a := r.get(path); a.code != 200 {
			t.Errorf("%s: %d", path, a.code)
		}
	}
}

func TestProfiles(t *testing.T) {
	r := newRig(t, alwaysAllow)
	expect(t, "own", r.get("/debug/pprof/"), 200, "goroutine")
	expect(t, "own, one", r.get("/debug/pprof/goroutine?debug=1"), 200, "goroutine profile")
	expect(t, "another service's", r.get("/debug/pprof/cmdline?service=podworker"), 200, "nodeapi.test")
	expect(t, "no service", r.get("/debug/pprof/?service=none"), 404, `no service "none"`)
	expect(t, "one that is away", r.get("/debug/pprof/?service=volume"), 502, "volume does not answer")
	expect(t, "a way out of the folder", r.get("/debug/pprof/?service=../../etc"), 404, "no service")
	r.configure(func(c *kubeletconfig.Config) {
		alwaysAllow(c)
		off := false
		c.Kubelet.EnableProfilingHandler = &off
	})
	r.Eventually("switched off", func() bool { return r.get("/debug/pprof/").code == 405 })
}

func TestMetrics(t *testing.T) {
	r := newRig(t, alwaysAllow)
	a := r.get("/metrics")
	for _, want := range []string{
		`sextant_service_up{service="nodeapi"} 1`, `sextant_service_up{service="podworker"} 1`, `sextant_service_up{service="volume"} 0`,
		"\nprocess_start_time_seconds ", "\n" + `sextant_process_start_time_seconds{service="podworker"} `,
		"# TYPE go_goroutines gauge\n",
		`sextant_build_info{service="nodeapi",version="` + service.Version + `"} 1`, `sextant_build_info{service="podworker",version="` + service.Version + `"} 1`,
	} {
		if a.code != 200 || !strings.Contains(a.body, want) {
			t.Errorf("%q is missing", want)
		}
	}
	lines := map[string]bool{}
	for line := range strings.Lines(a.body) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		series := line[:strings.LastIndexByte(strings.TrimSpace(line), ' ')]
		if lines[series] {
			t.Errorf("twice: %s", series)
		}
		lines[series] = true
	}
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "go_goroutines"} {
		if !strings.Contains(a.body, "\n"+name+" ") || strings.Contains(a.body, "\n"+name+"{") {
			t.Errorf("%s is not one series", name)
		}
	}
	probes := r.get("/metrics/probes")
	if probes.code != 200 || !strings.Contains(probes.body, "process_start_time_seconds") || strings.Contains(probes.body, "go_goroutines") {
		t.Errorf("probes: %d %.200q", probes.code, probes.body)
	}
	req, err := http.NewRequest(http.MethodGet, "https://"+address(r.port)+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	resp, err := r.client(who{}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	// OpenMetrics would rename counters that dashboards know: the answer is text.
	if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/plain; version=0.0.4") {
		t.Errorf("type %s", got)
	}
}

// TestMetricsWhenTheClockIsSet: a service is the same process though its start moves with
// the clock.
func TestMetricsWhenTheClockIsSet(t *testing.T) {
	r := newRig(t, alwaysAllow)
	listener, err := rpc.Listen(r.kit.Paths.DebugSocket(house.Volume))
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(service.StartedHeader, strconv.FormatInt(int64(r.kit.AfterBoot()), 10))
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprintf(w, "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %d\n# TYPE workqueue_adds_total counter\nworkqueue_adds_total{name=\"a\"} %d\n",
			time.Now().Unix()+3600*asked.Load(), 100*asked.Add(1))
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	for range 2 {
		r.get("/metrics")
	}
	if a := r.get("/metrics"); !strings.Contains(a.body, "\nworkqueue_adds_total{name=\"a\"} 300\n") {
		t.Errorf("asked %d times, and no sum of 300 in\n%s", asked.Load(), a.body)
	}
}

// TestGarbageOnThePort: what is no TLS, or no HTTP inside it, is cut off; the
// port goes on.
func TestGarbageOnThePort(t *testing.T) {
	r := newRig(t, alwaysAllow)
	for name, garbage := range map[string]string{
		"HTTP without TLS": "GET /pods HTTP/1.1\r\nHost: x\r\n\r\n", "zeros": string(make([]byte, 4096)), "noise": strings.Repeat("\xff\x16\x03\x01", 512),
		"a record too long": "\x16\x03\x01\xff\xff" + strings.Repeat("x", 1024),
	} {
		conn, err := net.Dial("tcp", address(r.port))
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(garbage)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: not cut off", name)
		}
		_ = conn.Close()
	}
	secure, err := tls.Dial("tcp", address(r.port), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := secure.Write([]byte("\x00\x01garbage\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	reply, err := io.ReadAll(secure)
	if err != nil || !strings.HasPrefix(string(reply), "HTTP/1.1 400") {
		t.Errorf("garbage inside TLS: %.60q, %v", reply, err)
	}
	header := "GET /pods HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n\r\n"
	if secure, err = tls.Dial("tcp", address(r.port), &tls.Config{InsecureSkipVerify: true}); err != nil {
		t.Fatal(err)
	}
	_, _ = secure.Write([]byte(header)) // it may be cut off before the end
	if reply, _ := io.ReadAll(secure); len(reply) > 0 && !strings.HasPrefix(string(reply), "HTTP/1.1 431") {
		t.Errorf("a header of 2 MiB: %.60q", reply)
	}
	expect(t, "the port", r.get("/pods"), 200, "PodList")
}

func TestAPortThatIsTaken(t *testing.T) {
	r := newRig(t, alwaysAllow)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	var moved int32
	if _, err := fmt.Sscan(port, &moved); err != nil {
		t.Fatal(err)
	}
	r.configure(func(c *kubeletconfig.Config) { alwaysAllow(c); c.Kubelet.HealthzPort = &moved })
	r.Eventually("it is said", func() bool {
		h := r.kit.Hello()
		return h.GetHealth() == nodev1.Health_HEALTH_FAILING && strings.Contains(h.GetHealthReason(), "healthz port")
	})
	expect(t, "the other port", r.get("/pods"), 200, "PodList")
	r.closes(r.healthz)
	r.configure(alwaysAllow) // and back
	r.opens(r.healthz)
	r.Eventually("healthy", func() bool { return r.kit.Hello().GetHealth() == nodev1.Health_HEALTH_SERVING })
}

func TestPortsFollowTheConfiguration(t *testing.T) {
	r := newRig(t, alwaysAllow)
	// A stream on a port that stays is not cut off.
	r.worker.write("first\n")
	logs := r.request(who{}, http.MethodGet, "/containerLogs/ns/p/c?follow=true")
	defer logs.Body.Close()
	read := func(want string) {
		t.Helper()
		buffer := make([]byte, len(want))
		if _, err := io.ReadFull(logs.Body, buffer); err != nil || string(buffer) != want {
			t.Fatalf("read %q, %v, want %q", buffer, err, want)
		}
	}
	read("first\n")
	r.configure(func(c *kubeletconfig.Config) { alwaysAllow(c); c.Kubelet.ReadOnlyPort = r.readOnly })
	r.opens(r.readOnly)
	r.worker.write("second\n")
	read("second\n")
	r.configure(func(c *kubeletconfig.Config) {
		alwaysAllow(c)
		off := false
		c.Kubelet.EnableServer = &off
	})
	r.closes(r.port)
	r.closes(r.readOnly)
	expect(t, "the local port", r.plain(r.healthz, "/healthz"), 500, "the node has not started: resource does not answer")
}

func TestTLSParameters(t *testing.T) {
	r := newRig(t, func(c *kubeletconfig.Config) {
		alwaysAllow(c)
		c.Kubelet.TLSMinVersion = "VersionTLS13"
	})
	if _, err := tls.Dial("tcp", address(r.port), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 was taken")
	}
	expect(t, "TLS 1.3", r.get("/pods"), 200, "")
	r.configure(func(c *kubeletconfig.Config) { alwaysAllow(c); c.Kubelet.TLSMinVersion = "VersionTLS99" })
	r.Eventually("a bad version is said", func() bool { return strings.HasPrefix(r.kit.Hello().GetHealthReason(), "tlsMinVersion: ") })
	expect(t, "the port stays as it was", r.get("/pods"), 200, "")
}

func shownBy(t *testing.T, port int32) *x509.Certificate {
	t.Helper()
	conn, err := tls.Dial("tcp", address(port), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

func TestServingCertificate(t *testing.T) {
	pki := t.TempDir() // without a certificate of an earlier life
	r := newRig(t, func(c *kubeletconfig.Config) { alwaysAllow(c); c.Node.CertDir = pki })
	own := shownBy(t, r.port)
	if err := own.VerifyHostname("n1"); err != nil {
		t.Errorf("self-signed: %v", err)
	}
	key, err := os.Stat(filepath.Join(house.CertDir(pki, house.NodeAPI), "kubelet.key"))
	if err != nil || key.Mode().Perm() != 0o600 {
		t.Errorf("key: %v, %v", key, err)
	}
	// One that is named, and replaced on disk while the port is open.
	dir := t.TempDir()
	name := func(name string) {
		pair := r.ca.sign(t, name, time.Hour, x509.ExtKeyUsageServerAuth)
		der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		for file, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: der}} {
			if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	configure := func(label string) {
		r.configure(func(c *kubeletconfig.Config) {
			alwaysAllow(c)
			c.Kubelet.TLSCertFile, c.Kubelet.TLSPrivateKeyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
			c.Node.Labels = map[string]string{"look": label}
		})
	}
	configure("1")
	r.Eventually("files that are not there are said", func() bool {
		return strings.HasPrefix(r.kit.Hello().GetHealthReason(), "tlsCertFile, tlsPrivateKeyFile: ")
	})
	if !shownBy(t, r.port).Equal(own) {
		t.Error("the former certificate is gone before the next one is there")
	}
	for i, cn := range []string{"first", "second"} {
		name(cn)
		configure(fmt.Sprint(i + 2))
		r.Eventually(cn, func() bool { return shownBy(t, r.port).Subject.CommonName == cn })
	}
}

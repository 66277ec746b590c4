// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/server/flagz/api/v1beta1"
	statuszv1beta1 "k8s.io/apiserver/pkg/server/statusz/api/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// send is do with a body and headers ("Name: value").
func (r *rig) send(w who, method, path, body string, headers ...string) answer {
	r.Helper()
	req, err := http.NewRequestWithContext(r.House.Context(), method, "https://"+address(r.port)+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	resp, err := r.client(w).Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return answer{resp.StatusCode, string(data), resp.Header}
}

const kinds = ";as=%s;v=%s;g=config.k8s.io"

func TestFlagz(t *testing.T) {
	flagged := func(c *kubeletconfig.Config) {
		alwaysAllow(c)
		c.Flags = []kubeletconfig.Saying{{Name: "v", Value: "3"}}
	}
	r := newRig(t, flagged)
	a := r.get("/flagz")
	if a.code != 200 || a.header.Get("Content-Type") != "text/plain; charset=utf-8" || !strings.HasPrefix(a.body, "\nkubelet flagz\n") {
		t.Errorf("text: %d %s %.80q", a.code, a.header.Get("Content-Type"), a.body)
	}
	asked := fmt.Sprintf(kinds, "Flagz", "v1beta1")
	for mediaType, decode := range map[string]func([]byte, any) error{
		"application/json": json.Unmarshal,
		"application/yaml": func(data []byte, into any) error { return yaml.Unmarshal(data, into) },
	} {
		a := r.send(who{}, http.MethodGet, "/flagz", "", "Accept: "+mediaType+asked)
		page := v1beta1.Flagz{}
		if err := decode([]byte(a.body), &page); err != nil || a.code != 200 {
			t.Fatalf("%s: %d, %v: %q", mediaType, a.code, err, a.body)
		}
		if page.Kind != "Flagz" || page.APIVersion != "config.k8s.io/v1beta1" || page.Name != "kubelet" || page.Flags["v"] != "3" || page.Flags["port"] != "10250" {
			t.Errorf("%s: %+v", mediaType, page)
		}
	}
	old := r.send(who{}, http.MethodGet, "/flagz", "", "Accept: application/json"+fmt.Sprintf(kinds, "Flagz", "v1alpha1"))
	if old.code != 200 || !strings.Contains(old.header.Get("Warning"), "deprecated") {
		t.Errorf("v1alpha1: %d, warning %q", old.code, old.header.Get("Warning"))
	}
	expect(t, "no kind", r.send(who{}, http.MethodGet, "/flagz", "", "Accept: application/json"), 406, "")
	// A new command line shows, and so does the gate.
	r.configure(func(c *kubeletconfig.Config) { flagged(c); c.Flags[0].Value = "5" })
	r.Eventually("new flags", func() bool {
		return strings.Contains(r.send(who{}, http.MethodGet, "/flagz", "", "Accept: application/json"+asked).body, `"v":"5"`)
	})
	r.configure(func(c *kubeletconfig.Config) {
		alwaysAllow(c)
		c.Kubelet.FeatureGates = map[string]bool{"ComponentFlagz": false}
	})
	r.Eventually("gate off", func() bool { return r.get("/flagz").code == 404 })
	expect(t, "the other page", r.get("/statusz"), 200, "kubelet statusz")
}

func TestStatusz(t *testing.T) {
	r := newRig(t, alwaysAllow)
	a := r.get("/statusz")
	for _, want := range []string{"kubelet statusz", "Binary version", "1.36.3", "Emulation version", "1.36", "/configz /debug /flagz /healthz /livez /metrics /readyz"} {
		expect(t, "text", a, 200, want)
	}
	a = r.send(who{}, http.MethodGet, "/statusz", "", "Accept: application/json"+fmt.Sprintf(kinds, "Statusz", "v1beta1"))
	page := statuszv1beta1.Statusz{}
	if err := json.Unmarshal([]byte(a.body), &page); err != nil || page.Kind != "Statusz" || page.BinaryVersion != "1.36.3" || page.GoVersion == "" || page.StartTime.IsZero() {
		t.Errorf("%d %v %+v", a.code, err, page)
	}
}

func TestVerbosity(t *testing.T) {
	r := newRig(t, alwaysAllow)
	level := r.kit.Level
	for _, test := range []struct {
		method, body string
		code         int
		want         string
		level        slog.Level
	}{
		{http.MethodPut, "4", 200, "successfully set klog.logging.verbosity to 4\n", slog.LevelDebug},
		{http.MethodPut, "10", 200, "successfully set klog.logging.verbosity to 10", slog.LevelDebug},
		{http.MethodPut, "3", 200, "successfully set klog.logging.verbosity to 3", slog.LevelInfo},
		{http.MethodPut, "-1", 400, `strconv.ParseUint: parsing "-1": invalid syntax`, slog.LevelInfo},
		{http.MethodPut, "", 400, "invalid syntax", slog.LevelInfo},
		{http.MethodPut, strings.Repeat("1", 1000), 400, "error reading request body: ", slog.LevelInfo},
		{http.MethodGet, "", 406, "unsupported http method", slog.LevelInfo},
		{http.MethodPost, "4", 406, "unsupported http method", slog.LevelInfo},
	} {
		expect(t, test.method+" "+test.body, r.send(who{}, test.method, "/debug/flags/v", test.body), test.code, test.want)
		if got := level.Level(); got != test.level {
			t.Errorf("%s %s: level %s, want %s", test.method, test.body, got, test.level)
		}
	}
	r.configure(func(c *kubeletconfig.Config) { off := false; alwaysAllow(c); c.Kubelet.EnableDebugFlagsHandler = &off })
	r.Eventually("switched off", func() bool { return r.get("/debug/flags/v").body == "flags endpoint is disabled.\n" })
}

// TestPathsAndMethods: what leads nowhere, and methods a path does not have, as
// the kubelet's router answers them.
func TestPathsAndMethods(t *testing.T) {
	r := newRig(t, nil) // nobody is let in
	for path, code := range map[string]int{
		"/": 404, "/none": 404, "/healthz/": 404, "/healthz/none": 404, "/metrics/none": 404, "/PODS": 404, "/spec/": 404, // for everybody
		"/pods": 401, "/pods/x": 401, "/exec/a": 401, "/stats/none": 401, "/metrics": 401, "/livez": 401, "/configz": 401, "/containerLogs/ns/p": 401,
	} {
		if a := r.get(path); a.code != code {
			t.Errorf("a stranger, %s: %d %q, want %d", path, a.code, a.body, code)
		}
	}
	r.configure(alwaysAllow)
	r.Eventually("everybody is let in", func() bool { return r.get("/pods").code == 200 })
	for _, test := range []struct {
		method, path string
		code         int
		allow, body  string
	}{
		{"GET", "/pods/x", 404, "", "404: Page Not Found"},
		{"GET", "/containerLogs/ns/p", 404, "", "404: Page Not Found"},
		{"GET", "/stats/none", 404, "", "404: Page Not Found"},
		{"POST", "/pods", 405, "GET", "405: Method Not Allowed"},
		{"OPTIONS", "/pods", 405, "GET", "405: Method Not Allowed"},
		{"HEAD", "/pods", 405, "GET", ""},
		{"HEAD", "/containerLogs/ns/p/c", 405, "GET", ""},
		{"POST", "/debug/pprof/symbol", 405, "GET", "405: Method Not Allowed"},
		{"POST", "/configz", 200, "", ""},
		{"POST", "/metrics/probes", 200, "", ""},
		{"HEAD", "/healthz", 200, "", ""},
	} {
		a := r.do(who{}, test.method, test.path)
		if a.code != test.code || a.header.Get("Allow") != test.allow || test.body != "" && a.body != test.body {
			t.Errorf("%s %s: %d %q, allow %q", test.method, test.path, a.code, a.body, a.header.Get("Allow"))
		}
	}
}

// TestRequestMetrics: the labels are the kubelet's, its quirk with portForward
// included.
func TestRequestMetrics(t *testing.T) {
	r := newRig(t, func(c *kubeletconfig.Config) { alwaysAllow(c); c.Kubelet.ReadOnlyPort = 0 })
	for _, req := range []string{
		"GET /pods", "GET /pods/", "PATCH /pods", "GET /metrics/cadvisor/x", "GET /metrics/slis", "GET /exec/ns/p/c", "GET /portForward/ns/p",
		"GET /debug/pprof/cmdline", "GET /none", "GET /healthz/ping",
	} {
		method, path, _ := strings.Cut(req, " ")
		r.do(who{}, method, path)
	}
	lines := strings.Split(r.get("/metrics").body, "\n")
	for _, want := range []string{
		`kubelet_http_requests_total{long_running="false",method="GET",path="pods",server_type="readwrite"} 2`,
		`kubelet_http_requests_total{long_running="false",method="other",path="pods",server_type="readwrite"} 1`,
		`kubelet_http_requests_total{long_running="false",method="GET",path="metrics/cadvisor",server_type="readwrite"} 1`,
		`kubelet_http_requests_total{long_running="true",method="GET",path="exec",server_type="readwrite"} 1`,
		`kubelet_http_requests_total{long_running="false",method="GET",path="portForward",server_type="readwrite"} 1`,
		`kubelet_http_requests_total{long_running="true",method="GET",path="debug",server_type="readwrite"} 1`,
		`kubelet_http_requests_total{long_running="false",method="GET",path="healthz",server_type="readwrite"} 1`,
		`kubelet_http_requests_total{long_running="false",method="GET",path="other",server_type="readwrite"} 2`,
		`kubelet_http_inflight_requests{long_running="false",method="GET",path="metrics",server_type="readwrite"} 1`,
		`kubelet_http_inflight_requests{long_running="false",method="GET",path="pods",server_type="readwrite"} 0`,
		`kubelet_http_requests_duration_seconds_count{long_running="false",method="GET",path="pods",server_type="readwrite"} 2`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestContentionProfiles: blocking is recorded while the configuration says so,
// and only where profiles may be read.
func TestContentionProfiles(t *testing.T) {
	r := newRig(t, alwaysAllow)
	rate := func() int { return runtime.SetMutexProfileFraction(-1) }
	if rate() != 0 {
		t.Errorf("rate %d at first", rate())
	}
	on, off := true, false
	profiled := func(c *kubeletconfig.Config) { alwaysAllow(c); c.Kubelet.EnableContentionProfiling = on }
	r.configure(profiled)
	r.Eventually("recorded", func() bool { return rate() == 1 })
	expect(t, "profile", r.get("/debug/pprof/mutex?debug=1"), 200, "sampling period=1")
	r.configure(func(c *kubeletconfig.Config) { profiled(c); c.Kubelet.EnableProfilingHandler = &off })
	r.Eventually("not where profiles are off", func() bool { return rate() == 0 })
	r.configure(profiled)
	r.Eventually("recorded again", func() bool { return rate() == 1 })
	r.configure(func(c *kubeletconfig.Config) { profiled(c); c.Kubelet.EnableDebuggingHandlers = &off })
	r.Eventually("not where debugging is off", func() bool { return rate() == 0 })
}

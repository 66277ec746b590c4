// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// hook is one lifecycle handler to be run.
type hook struct {
	pod       *v1.Pod
	container *v1.Container
	id        string
	ips       []string
	handler   *v1.LifecycleHandler
}

func (h hook) where() string {
	return fmt.Sprintf("Container %q in Pod %q", h.container.Name, pod.String(h.pod))
}

// runHook runs a handler to its end or that of ctx.
func (a *stopper) runHook(ctx context.Context, h hook) error {
	switch {
	case h.handler.Exec != nil:
		output, err := a.execHook(ctx, h)
		if err != nil {
			return fmt.Errorf("Exec lifecycle hook (%v) for %s failed - error: %w, message: %q", h.handler.Exec.Command, h.where(), err, output) //nolint:staticcheck // users know these words
		}
	case h.handler.HTTPGet != nil:
		if err := a.httpHook(ctx, h); err != nil {
			return fmt.Errorf("HTTP lifecycle hook (%s) for %s failed - error: %w", h.handler.HTTPGet.Path, h.where(), err)
		}
	case h.handler.Sleep != nil:
		if err := a.sleepHook(ctx, h.handler.Sleep.Seconds); err != nil {
			return fmt.Errorf("Sleep lifecycle hook (%d) for %s failed - error: %w", h.handler.Sleep.Seconds, h.where(), err) //nolint:staticcheck // as above
		}
	default:
		return errors.New("Cannot run handler: invalid handler: want exec, httpGet or sleep") //nolint:staticcheck // as above
	}
	return nil
}

// maxHookOutput is how much of each output of a command is kept for the message of its
// failure, in bytes; a runtime hands on megabytes.
const maxHookOutput = 2 << 10

func (a *stopper) execHook(ctx context.Context, h hook) (output string, err error) {
	resp, err := a.deps.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: h.id, Cmd: h.handler.Exec.Command})
	if err != nil {
		return "", err
	}
	stderr := firstText(resp.GetStderr(), maxHookOutput)
	output = firstText(resp.GetStdout(), maxHookOutput) + stderr
	if code := resp.GetExitCode(); code != 0 {
		return output, fmt.Errorf("command '%s' exited with %d: %s", strings.Join(h.handler.Exec.Command, " "), code, stderr)
	}
	return output, nil
}

func (a *stopper) sleepHook(ctx context.Context, secs int64) error {
	if secs <= 0 {
		return nil
	}
	timer := a.deps.Clock.NewTimer(pod.Seconds(secs))
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		a.metrics.sleepsCutShort.Inc()
		return errors.New("container terminated before sleep hook finished")
	}
}

// hookClient trusts any certificate, as probes do: the pod's address is the
// identity. It speaks HTTP/1.1 alone, unlike probes, as a kubelet's does.
var hookClient = &http.Client{
	Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
		DialContext:       (&net.Dialer{Timeout: 30 * time.Second}).DialContext,
	},
	CheckRedirect: stayThere,
}

// maxRedirects is net/http's own limit.
const maxRedirects = 10

// stayThere follows redirects as probes do: to another host none, so that a pod does not
// have the node ask whom it likes. That redirect is the answer, and any answer will do.
func stayThere(next *http.Request, via []*http.Request) error {
	if next.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}

// maxHookBody is how much of an answer is read, in bytes.
const maxHookBody = 10 << 10

// httpHook succeeds with any answer, whatever its code.
func (a *stopper) httpHook(ctx context.Context, h hook) error {
	if len(h.ips) == 0 && h.pod.Spec.HostNetwork {
		h.ips = a.deps.Lookups.Node().IPs
	}
	target, err := hookURL(h)
	if err != nil {
		return err
	}
	err = get(ctx, target, h.handler.HTTPGet)
	if target.Scheme == "https" && err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		// Manifests from a time when the scheme was ignored.
		target.Scheme = "http"
		if err = get(ctx, target, h.handler.HTTPGet); err == nil {
			a.metrics.hookFallbacks.Inc()
			a.event(ctx, h.pod, "", v1.EventTypeWarning, "LifecycleHTTPFallback",
				fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", target.Host))
		}
	}
	return err
}

func get(ctx context.Context, target *url.URL, action *v1.HTTPGetAction) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "kube-lifecycle/1.36")
	req.Header.Set("Accept", "*/*")
	for _, header := range action.HTTPHeaders {
		if strings.EqualFold(header.Name, "Host") {
			req.Host = header.Value
			continue
		}
		req.Header.Add(header.Name, header.Value)
	}
	resp, err := hookClient.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxHookBody) // only so that the server can finish
	return resp.Body.Close()
}

func hookURL(h hook) (*url.URL, error) {
	action := h.handler.HTTPGet
	host := action.Host
	if host == "" {
		if len(h.ips) == 0 {
			return nil, errors.New("the pod has no address")
		}
		host = h.ips[0]
	}
	port := action.Port.IntValue()
	if name := action.Port.StrVal; name != "" && port == 0 {
		for _, p := range h.container.Ports {
			if p.Name == name {
				port = int(p.ContainerPort)
			}
		}
		if port == 0 {
			return nil, fmt.Errorf("couldn't find port: %q", name)
		}
	}
	scheme := "http"
	if action.Scheme == v1.URISchemeHTTPS {
		scheme = "https"
	}
	u, err := url.Parse(action.Path)
	if err != nil {
		u = &url.URL{Path: action.Path}
	}
	port = cmp.Or(port, 80)
	u.Scheme, u.Host = scheme, net.JoinHostPort(host, strconv.Itoa(port))
	return u, nil
}

// SPDX-License-Identifier: Apache-2.0

package probe

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
	"sync"

	v1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

// transport speaks HTTP/2 with a server that does, over TLS, unless DISABLE_HTTP2 is set
// (the kubelet's rule). Each probe has a connection of its own.
var transport = sync.OnceValue(func() *http.Transport {
	return utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the kubelet's rule: a probe asks for life, not identity
		DisableKeepAlives:      true,
		DisableCompression:     true,
		Proxy:                  http.ProxyURL(nil),
		DialContext:            (&net.Dialer{}).DialContext,
		MaxResponseHeaderBytes: maxHeader,
	})
})

// http is the kubelet's HTTP probe: 200 to 399 is success, a redirect to
// another host counts as one with a warning, certificates are not verified.
func (p *Prober) http(ctx context.Context, action *v1.HTTPGetAction, s Subject) Outcome {
	req, err := p.request(ctx, action, s)
	if err != nil {
		return errored(err)
	}
	client := &http.Client{
		Transport: transport(),
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if next.URL.Hostname() != via[0].URL.Hostname() {
				return http.ErrUseLastResponse // the redirect itself is the answer
			}
			if len(via) >= 10 {
				return errors.New("stopped after 10 redirects")
			}
			return nil
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return failed("Get %q: %v", req.URL, trim(err))
	}
	defer resp.Body.Close()                                       //nolint:errcheck // the connection is closed anyway
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1)) // one more tells where the last character begins
	if err != nil {
		// A kubelet throws this result away: the server has answered, and did not say failure.
		return errored(fmt.Errorf("read body: %w", err))
	}
	if resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest {
		return Outcome{Result: schedule.Success, Message: string(body), Warning: "Probe terminated redirects, Response body: " + string(body)}
	}
	if resp.StatusCode >= http.StatusOK && resp.StatusCode < http.StatusBadRequest {
		return Outcome{Result: schedule.Success, Message: string(body)}
	}
	return failed("HTTP probe failed with statuscode: %d", resp.StatusCode)
}

func (p *Prober) request(ctx context.Context, action *v1.HTTPGetAction, s Subject) (*http.Request, error) {
	port, err := portOf(action.Port, s.Container)
	if err != nil {
		return nil, err
	}
	host := cmp.Or(action.Host, s.PodIP)
	target, err := url.Parse(action.Path)
	if err != nil { // a path that is no URL is sent as it is
		target = &url.URL{Path: action.Path}
	}
	target.Scheme = cmp.Or(strings.ToLower(string(action.Scheme)), "http")
	target.Host = net.JoinHostPort(host, strconv.Itoa(port))
	if !strings.HasPrefix(target.Path, "/") {
		target.Path = "/" + target.Path
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", p.UserAgent)
	req.Header.Set("Accept", "*/*")
	said := map[string]bool{}
	for _, h := range action.HTTPHeaders {
		name := http.CanonicalHeaderKey(h.Name)
		if !said[name] {
			req.Header.Del(name) // the spec's own replaces ours
			said[name] = true
		}
		req.Header.Add(name, h.Value)
		if name == "Host" {
			req.Host = h.Value
		}
	}
	if said["Accept"] && req.Header.Get("Accept") == "" {
		req.Header.Del("Accept") // not sent; an empty User-Agent is not either, while it is there
	}
	return req, nil
}

// trim drops the URL that url.Error repeats.
func trim(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// proto is the protocol a request is answered by, of a client that prefers HTTP/2.
func (r *rig) proto(config *tls.Config) (string, error) {
	config.InsecureSkipVerify = true
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://" + address(r.port) + "/healthz/ping")
	if err != nil {
		return "", err
	}
	_ = resp.Body.Close()
	return resp.Proto, nil
}

func TestHTTP2(t *testing.T) {
	r := newRig(t, alwaysAllow)
	if got, err := r.proto(&tls.Config{}); got != "HTTP/2.0" {
		t.Errorf("%q, %v", got, err)
	}
	// Without the cipher it needs, HTTP/1.1 is what remains.
	const narrow = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
	r.configure(func(c *kubeletconfig.Config) {
		alwaysAllow(c)
		c.Kubelet.TLSCipherSuites = []string{narrow, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}
	})
	r.Eventually("HTTP/1.1", func() bool {
		got, err := r.proto(&tls.Config{MaxVersion: tls.VersionTLS12})
		return err == nil && got == "HTTP/1.1"
	})
	if _, err := r.proto(&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}}); err == nil {
		t.Error("a cipher that is not configured was taken")
	}
}

func TestCurves(t *testing.T) {
	r := newRig(t, func(c *kubeletconfig.Config) {
		alwaysAllow(c)
		c.Kubelet.TLSCurvePreferences = []int32{int32(tls.CurveP384)}
	})
	if _, err := r.proto(&tls.Config{CurvePreferences: []tls.CurveID{tls.X25519}}); err == nil {
		t.Error("a key exchange that is not configured was taken")
	}
	if _, err := r.proto(&tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP384}}); err != nil {
		t.Error(err)
	}
	r.configure(func(c *kubeletconfig.Config) { alwaysAllow(c); c.Kubelet.TLSCurvePreferences = []int32{1} })
	r.Eventually("a bad one is said", func() bool { return strings.HasPrefix(r.kit.Hello().GetHealthReason(), "tlsCurvePreferences: ") })
}

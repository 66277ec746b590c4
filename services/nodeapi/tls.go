package nodeapi

import (
	"crypto/tls"
	"fmt"
	"slices"

	"k8s.io/component-base/cli/flag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// tlsParameters reads what the configuration says about TLS: versions, ciphers,
// key exchanges. HTTP/2 is spoken to those who ask for it, as by the kubelet;
// upgrades (streams) come by HTTP/1.1.
func tlsParameters(k *kubeletv1beta1.KubeletConfiguration) (*tls.Config, error) {
	config := &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	var err error
	if v := k.TLSMinVersion; v != "" {
		if config.MinVersion, err = flag.TLSVersion(v); err != nil {
			return nil, fmt.Errorf("tlsMinVersion: %w", err)
		}
	}
	if suites := k.TLSCipherSuites; len(suites) > 0 {
		if config.CipherSuites, err = flag.TLSCipherSuites(suites); err != nil {
			return nil, fmt.Errorf("tlsCipherSuites: %w", err)
		}
	}
	if config.CurvePreferences, err = flag.TLSCurvePreferences(k.TLSCurvePreferences); err != nil {
		return nil, fmt.Errorf("tlsCurvePreferences: %w", err)
	}
	if config.MinVersion < tls.VersionTLS13 && config.CipherSuites != nil && !slices.ContainsFunc(config.CipherSuites, forHTTP2) {
		config.NextProtos = []string{"http/1.1"}
	}
	return config, nil
}

// forHTTP2 are the ciphers of which HTTP/2 over TLS 1.2 needs one (RFC 9113, 9.2.2).
func forHTTP2(suite uint16) bool {
	return suite == tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 || suite == tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
}

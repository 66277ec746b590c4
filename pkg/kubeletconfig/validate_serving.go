// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	cliflag "k8s.io/component-base/cli/flag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	netutils "k8s.io/utils/net"
)

// serving checks addresses and ports.
func (v *validator) serving() {
	k := v.k
	v.address("address", k.Address)
	v.port("port", k.Port, false)
	v.port("readOnlyPort", k.ReadOnlyPort, true)
	if k.ReadOnlyPort != 0 && k.ReadOnlyPort == k.Port {
		v.invalid(at("readOnlyPort"), k.ReadOnlyPort, "must not be the same as port")
	}
	v.address("healthzBindAddress", k.HealthzBindAddress)
	v.port("healthzPort", *k.HealthzPort, true)
	if *k.EnableSystemLogQuery && !*k.EnableSystemLogHandler {
		v.forbidden(at("enableSystemLogQuery"), "requires enableSystemLogHandler: true")
	}
}

func (v *validator) address(path, value string) {
	if netutils.ParseIPSloppy(value) == nil {
		v.invalid(at(path), value, "must be an IP address")
	}
}

// authentication checks who may call the API. Webhooks ask the API server, so
// a standalone node cannot use them.
func (v *validator) authentication() {
	k := v.k
	oneOf(v, "authorization.mode", k.Authorization.Mode,
		kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow, kubeletv1beta1.KubeletAuthorizationModeWebhook)
	if v.standalone && *k.Authentication.Webhook.Enabled {
		v.forbidden(at("authentication.webhook.enabled"), "a standalone node has no API server to review tokens; set it to false or give --kubeconfig")
	}
	if v.standalone && k.Authorization.Mode == kubeletv1beta1.KubeletAuthorizationModeWebhook {
		v.forbidden(at("authorization.mode"), "a standalone node has no API server to review access; set it to AlwaysAllow or give --kubeconfig")
	}
	v.durNotNegative("authentication.webhook.cacheTTL", k.Authentication.Webhook.CacheTTL.Duration)
	v.durNotNegative("authorization.webhook.cacheAuthorizedTTL", k.Authorization.Webhook.CacheAuthorizedTTL.Duration)
	v.durNotNegative("authorization.webhook.cacheUnauthorizedTTL", k.Authorization.Webhook.CacheUnauthorizedTTL.Duration)
}

// tls checks the HTTPS settings against what Go's TLS offers.
func (v *validator) tls() {
	k := v.k
	for i, suite := range k.TLSCipherSuites {
		if _, err := cliflag.TLSCipherSuites([]string{suite}); err != nil {
			v.invalid(at("tlsCipherSuites").Index(i), suite, "is not a cipher suite of Go's crypto/tls")
		}
	}
	if _, err := cliflag.TLSVersion(k.TLSMinVersion); err != nil {
		oneOf(v, "tlsMinVersion", k.TLSMinVersion, cliflag.TLSPossibleVersions()...)
	}
	seen := map[int32]bool{}
	for i, curve := range k.TLSCurvePreferences {
		if _, err := cliflag.TLSCurvePreferences([]int32{curve}); err != nil {
			v.invalid(at("tlsCurvePreferences").Index(i), curve, "is not a curve of Go's crypto/tls")
		}
		if seen[curve] {
			v.invalid(at("tlsCurvePreferences").Index(i), curve, "is listed twice")
		}
		seen[curve] = true
	}
	if (k.TLSCertFile == "") != (k.TLSPrivateKeyFile == "") {
		missing, given := "tlsCertFile", "tlsPrivateKeyFile"
		if k.TLSPrivateKeyFile == "" {
			missing, given = given, missing
		}
		v.required(at(missing), "must be given together with %s", given)
	}
	if k.ServerTLSBootstrap && !v.gates.enabled("RotateKubeletServerCertificate") {
		v.forbidden(at("serverTLSBootstrap"), "requires the feature gate RotateKubeletServerCertificate")
	}
}

// clients checks the limits of what the node asks of the API server.
func (v *validator) clients() {
	k := v.k
	v.notNegative("eventRecordQPS", int64(*k.EventRecordQPS))
	v.notNegative("eventBurst", int64(k.EventBurst))
	v.notNegative("kubeAPIQPS", int64(*k.KubeAPIQPS))
	v.notNegative("kubeAPIBurst", int64(k.KubeAPIBurst))
	oneOf(v, "contentType", k.ContentType, "", "application/vnd.kubernetes.protobuf", "application/json", "application/yaml", "application/cbor")
	v.notNegative("maxOpenFiles", k.MaxOpenFiles)
	v.between("oomScoreAdj", int64(*k.OOMScoreAdj), -1000, 1000)
}

// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// runtime checks the CRI endpoints and the deadline of calls to them.
func (v *validator) runtime() {
	k := v.k
	if k.ContainerRuntimeEndpoint == "" {
		v.required(at("containerRuntimeEndpoint"), "must be a unix:// socket")
	} else {
		v.endpoint("containerRuntimeEndpoint", k.ContainerRuntimeEndpoint)
	}
	if k.ImageServiceEndpoint != "" {
		v.endpoint("imageServiceEndpoint", k.ImageServiceEndpoint)
	}
	v.positive("runtimeRequestTimeout", k.RuntimeRequestTimeout.Duration)
	v.podLogsDir()
}

// endpoint takes unix:///path, or just the path as older configurations do.
func (v *validator) endpoint(path, value string) {
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "unix" && u.Scheme != "") || !strings.HasPrefix(u.Path, "/") || u.Host != "" {
		v.invalid(at(path), value, "must be a Unix socket, such as unix:///run/containerd/containerd.sock")
	}
}

func (v *validator) podLogsDir() {
	p, dir := at("podLogsDir"), v.k.PodLogsDir
	if !cleanAbs(dir) {
		v.invalid(p, dir, "must be an absolute path without . and .. and doubled or trailing slashes")
	}
	if strings.ContainsFunc(dir, func(r rune) bool { return r > unicode.MaxASCII }) {
		v.invalid(p, dir, "must hold ASCII characters only, because it becomes a metric label")
	}
}

// imagePulls checks how images are pulled and who may use those on the node.
func (v *validator) imagePulls() {
	k := v.k
	v.notNegative("registryPullQPS", int64(*k.RegistryPullQPS))
	v.notNegative("registryBurst", int64(k.RegistryBurst))
	if n := k.MaxParallelImagePulls; n != nil && *n < 1 {
		v.invalid(at("maxParallelImagePulls"), *n, "must be at least 1")
	} else if n != nil && *n > 1 && *k.SerializeImagePulls {
		v.invalid(at("maxParallelImagePulls"), *n, "must be 1 unless serializeImagePulls is false")
	}

	policy, list := k.ImagePullCredentialsVerificationPolicy, at("preloadedImagesVerificationAllowlist")
	if !v.gates.enabled("KubeletEnsureSecretPulledImages") {
		if policy != "" {
			v.forbidden(at("imagePullCredentialsVerificationPolicy"), "requires the feature gate KubeletEnsureSecretPulledImages")
		}
		if len(k.PreloadedImagesVerificationAllowlist) > 0 {
			v.forbidden(list, "requires the feature gate KubeletEnsureSecretPulledImages")
		}
		return
	}
	oneOf(v, "imagePullCredentialsVerificationPolicy", policy, kubeletv1beta1.NeverVerify,
		kubeletv1beta1.NeverVerifyPreloadedImages, kubeletv1beta1.NeverVerifyAllowlistedImages, kubeletv1beta1.AlwaysVerify)
	if len(k.PreloadedImagesVerificationAllowlist) > 0 && policy != kubeletv1beta1.NeverVerifyAllowlistedImages {
		v.forbidden(list, "requires imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages")
		return
	}
	for i, pattern := range k.PreloadedImagesVerificationAllowlist {
		v.allowlisted(list.Index(i), pattern)
	}
}

// allowlisted checks an image name, or a prefix of names ending in "/*".
func (v *validator) allowlisted(p *field.Path, pattern string) {
	prefix, wildcard := strings.CutSuffix(pattern, "/*")
	switch {
	case pattern != strings.TrimSpace(pattern):
		v.invalid(p, pattern, "must not begin or end with a space")
	case strings.Contains(prefix, "*"):
		v.invalid(p, pattern, "may hold a * only as a final /*")
	case prefix == "":
		v.invalid(p, pattern, "must name a registry or an image")
	case wildcard:
	default:
		ref, err := reference.Parse(pattern)
		_, tagged := ref.(reference.Tagged)
		_, digested := ref.(reference.Digested)
		switch {
		case err != nil:
			v.invalid(p, pattern, "is not the name of an image")
		case tagged || digested:
			v.invalid(p, pattern, "must have neither tag nor digest")
		}
	}
}

// imageGC checks when unused images go.
func (v *validator) imageGC() {
	k := v.k
	high, low := *k.ImageGCHighThresholdPercent, *k.ImageGCLowThresholdPercent
	v.between("imageGCHighThresholdPercent", int64(high), 0, 100)
	v.between("imageGCLowThresholdPercent", int64(low), 0, 100)
	if low >= high {
		v.invalid(at("imageGCLowThresholdPercent"), low, "must be less than imageGCHighThresholdPercent, which is %d", high)
	}
	oldest, youngest := k.ImageMaximumGCAge.Duration, k.ImageMinimumGCAge.Duration
	v.durNotNegative("imageMinimumGCAge", youngest)
	v.durNotNegative("imageMaximumGCAge", oldest)
	if oldest > 0 && oldest <= youngest {
		v.invalid(at("imageMaximumGCAge"), oldest.String(), "must be more than imageMinimumGCAge, which is %s", youngest)
	}
}

// containerLogs checks the rotation of container logs.
func (v *validator) containerLogs() {
	k := v.k
	if q, err := parseQuantity(k.ContainerLogMaxSize); err != nil {
		v.invalid(at("containerLogMaxSize"), k.ContainerLogMaxSize, "%v", err)
	} else if _, ok := q.AsInt64(); !ok {
		v.invalid(at("containerLogMaxSize"), k.ContainerLogMaxSize, "must be a whole number of bytes")
	}
	if *k.ContainerLogMaxFiles <= 1 {
		v.invalid(at("containerLogMaxFiles"), *k.ContainerLogMaxFiles, "must be greater than 1")
	}
	if *k.ContainerLogMaxWorkers < 1 {
		v.invalid(at("containerLogMaxWorkers"), *k.ContainerLogMaxWorkers, "must be at least 1")
	}
	if d := k.ContainerLogMonitorInterval.Duration; d < 3*time.Second {
		v.invalid(at("containerLogMonitorInterval"), d.String(), "must be at least 3s")
	}
}

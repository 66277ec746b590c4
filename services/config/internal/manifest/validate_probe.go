// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sextant-node/sextant/pkg/pod"
)

// probes checks probes and hooks. Only what keeps running has them.
func (v *containerValidator) probes() {
	c := v.c
	if v.kind == pod.Init {
		for name, set := range map[string]bool{
			"livenessProbe": c.LivenessProbe != nil, "readinessProbe": c.ReadinessProbe != nil,
			"startupProbe": c.StartupProbe != nil, "lifecycle": c.Lifecycle != nil,
		} {
			if set {
				v.add(field.Forbidden(v.path.Child(name), "may not be set for init containers without restartPolicy=Always"))
			}
		}
		return
	}
	v.probe(v.path.Child("livenessProbe"), c.LivenessProbe, true)
	v.probe(v.path.Child("readinessProbe"), c.ReadinessProbe, false)
	v.probe(v.path.Child("startupProbe"), c.StartupProbe, true)
	if p := c.ReadinessProbe; p != nil && p.TerminationGracePeriodSeconds != nil {
		v.add(field.Invalid(v.path.Child("readinessProbe", "terminationGracePeriodSeconds"), *p.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
	}
	if l := c.Lifecycle; l != nil {
		v.hook(v.path.Child("lifecycle", "postStart"), l.PostStart)
		v.hook(v.path.Child("lifecycle", "preStop"), l.PreStop)
		if l.StopSignal != nil && v.pod.Spec.OS == nil {
			v.add(field.Required(v.path.Child("lifecycle", "stopSignal"), "spec.os.name must be set for a stop signal"))
		}
	}
}

func (v *containerValidator) probe(at *field.Path, p *v1.Probe, kills bool) {
	if p == nil {
		return
	}
	const most = 1<<31 - 1
	v.add(inRange(at.Child("initialDelaySeconds"), int64(p.InitialDelaySeconds), 0, most)...)
	v.add(inRange(at.Child("timeoutSeconds"), int64(p.TimeoutSeconds), 1, most)...)
	v.add(inRange(at.Child("periodSeconds"), int64(p.PeriodSeconds), 1, most)...)
	v.add(inRange(at.Child("successThreshold"), int64(p.SuccessThreshold), 1, most)...)
	v.add(inRange(at.Child("failureThreshold"), int64(p.FailureThreshold), 1, most)...)
	if kills && p.SuccessThreshold != 1 {
		v.add(field.Invalid(at.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	if g := p.TerminationGracePeriodSeconds; g != nil && *g <= 0 {
		v.add(field.Invalid(at.Child("terminationGracePeriodSeconds"), *g, "must be greater than 0"))
	}
	v.add(exactlyOne(at, map[string]bool{
		"exec": p.Exec != nil, "httpGet": p.HTTPGet != nil, "tcpSocket": p.TCPSocket != nil, "grpc": p.GRPC != nil,
	})...)
	v.exec(at.Child("exec"), p.Exec)
	v.httpGet(at.Child("httpGet"), p.HTTPGet)
	v.tcpSocket(at.Child("tcpSocket"), p.TCPSocket)
	if p.GRPC != nil {
		v.add(inRange(at.Child("grpc", "port"), int64(p.GRPC.Port), 1, 65535)...)
	}
}

func (v *containerValidator) hook(at *field.Path, h *v1.LifecycleHandler) {
	if h == nil {
		return
	}
	v.add(exactlyOne(at, map[string]bool{
		"exec": h.Exec != nil, "httpGet": h.HTTPGet != nil, "tcpSocket": h.TCPSocket != nil, "sleep": h.Sleep != nil,
	})...)
	v.exec(at.Child("exec"), h.Exec)
	v.httpGet(at.Child("httpGet"), h.HTTPGet)
	v.tcpSocket(at.Child("tcpSocket"), h.TCPSocket)
	if h.Sleep != nil {
		longest := int64(v1.DefaultTerminationGracePeriodSeconds)
		if g := v.pod.Spec.TerminationGracePeriodSeconds; g != nil {
			longest = *g
		}
		v.add(inRange(at.Child("sleep", "seconds"), h.Sleep.Seconds, 0, longest)...)
	}
}

func (v *containerValidator) exec(at *field.Path, a *v1.ExecAction) {
	if a != nil && len(a.Command) == 0 {
		v.add(field.Required(at.Child("command"), ""))
	}
}

func (v *containerValidator) httpGet(at *field.Path, a *v1.HTTPGetAction) {
	if a == nil {
		return
	}
	v.port(at.Child("port"), a.Port)
	v.add(oneOf(at.Child("scheme"), a.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)...)
	for i, h := range a.HTTPHeaders {
		for _, problem := range validation.IsHTTPHeaderName(h.Name) {
			v.add(field.Invalid(at.Child("httpHeaders").Index(i).Child("name"), h.Name, problem))
		}
	}
}

func (v *containerValidator) tcpSocket(at *field.Path, a *v1.TCPSocketAction) {
	if a != nil {
		v.port(at.Child("port"), a.Port)
	}
}

func (v *containerValidator) port(at *field.Path, p intstr.IntOrString) {
	if p.Type == intstr.Int {
		v.add(inRange(at, int64(p.IntVal), 1, 65535)...)
		return
	}
	for _, problem := range validation.IsValidPortName(p.StrVal) {
		v.add(field.Invalid(at, p.StrVal, problem))
	}
}

// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/pod"
)

// probeValidator checks the probes and hooks of one container.
type probeValidator struct {
	path    *field.Path
	longest int64 // that a hook may sleep, in seconds
	errs    field.ErrorList
}

func (v *probeValidator) add(errs ...*field.Error) { v.errs = append(v.errs, errs...) }

// validateProbes checks the probes and hooks of a container. Only what keeps running has them.
func validateProbes(at *field.Path, c *v1.Container, kind pod.ContainerKind, p *v1.Pod) field.ErrorList {
	v := &probeValidator{path: at, longest: ptr.Deref(p.Spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)}
	if kind == pod.Init {
		for name, set := range map[string]bool{
			"livenessProbe": c.LivenessProbe != nil, "readinessProbe": c.ReadinessProbe != nil,
			"startupProbe": c.StartupProbe != nil, "lifecycle": c.Lifecycle != nil,
		} {
			if set {
				v.add(field.Forbidden(v.path.Child(name), "may not be set for init containers without restartPolicy=Always"))
			}
		}
		return v.errs
	}
	v.probe(v.path.Child("livenessProbe"), c.LivenessProbe, true)
	v.probe(v.path.Child("readinessProbe"), c.ReadinessProbe, false)
	v.probe(v.path.Child("startupProbe"), c.StartupProbe, true)
	if r := c.ReadinessProbe; r != nil && r.TerminationGracePeriodSeconds != nil {
		v.add(field.Invalid(v.path.Child("readinessProbe", "terminationGracePeriodSeconds"), *r.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
	}
	if l := c.Lifecycle; l != nil {
		v.hook(v.path.Child("lifecycle", "postStart"), l.PostStart)
		v.hook(v.path.Child("lifecycle", "preStop"), l.PreStop)
		if l.StopSignal != nil && p.Spec.OS == nil {
			v.add(field.Required(v.path.Child("lifecycle", "stopSignal"), "spec.os.name must be set for a stop signal"))
		}
	}
	return v.errs
}

func (v *probeValidator) probe(at *field.Path, p *v1.Probe, kills bool) {
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

func (v *probeValidator) hook(at *field.Path, h *v1.LifecycleHandler) {
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
		v.add(inRange(at.Child("sleep", "seconds"), h.Sleep.Seconds, 0, v.longest)...)
	}
}

func (v *probeValidator) exec(at *field.Path, a *v1.ExecAction) {
	if a != nil && len(a.Command) == 0 {
		v.add(field.Required(at.Child("command"), ""))
	}
}

func (v *probeValidator) httpGet(at *field.Path, a *v1.HTTPGetAction) {
	if a == nil {
		return
	}
	v.port(at.Child("port"), a.Port)
	v.add(oneOf(at.Child("scheme"), a.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)...)
	for i, h := range a.HTTPHeaders {
		v.add(invalid(at.Child("httpHeaders").Index(i).Child("name"), h.Name, validation.IsHTTPHeaderName(h.Name))...)
	}
}

func (v *probeValidator) tcpSocket(at *field.Path, a *v1.TCPSocketAction) {
	if a != nil {
		v.port(at.Child("port"), a.Port)
	}
}

func (v *probeValidator) port(at *field.Path, p intstr.IntOrString) {
	if p.Type == intstr.Int {
		v.add(inRange(at, int64(p.IntVal), 1, 65535)...)
		return
	}
	v.add(invalid(at, p.StrVal, validation.IsValidPortName(p.StrVal))...)
}

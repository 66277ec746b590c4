// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// reason is a cause as `sextant why` tells it.
type reason struct {
	Owner, Step, Container, Message, LastError string
	Since, NextRetry                           time.Time
}

// why waits until the verb names a first cause that is right.
func (e *env) why(pod, what string, check func([]reason) error) {
	e.Helper()
	harness.Eventually(e, usual, "sextant why "+pod+" to name "+what, func(ctx context.Context) error {
		out := e.n.TryVerb(ctx, "why", e.ns+"/"+pod, "-o=json")
		var answers []struct{ Causes []reason }
		if err := json.Unmarshal([]byte(out), &answers); err != nil || len(answers) != 1 {
			return fmt.Errorf("%s: %w", out, err)
		}
		if err := check(answers[0].Causes); err != nil {
			return fmt.Errorf("%w; it said %s", err, out)
		}
		return nil
	})
}

// first checks the first cause.
func first(check func(reason) bool) func([]reason) error {
	return func(all []reason) error {
		if len(all) == 0 || !check(all[0]) {
			return fmt.Errorf("not that")
		}
		return nil
	}
}

// whyVerb asks for what holds pods up, each by another service's doing.
func whyVerb(e *env) {
	e.create(e.pod("fine"))
	unmounted := e.pod("unmounted")
	unmounted.Spec.Volumes = []corev1.Volume{{Name: "conf", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "nowhere"}},
	}}}
	unmounted.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "conf", MountPath: "/conf"}}
	e.create(unmounted)
	unready := e.pod("unready", "--not-ready")
	unready.Spec.Containers[0].ReadinessProbe = httpProbe("/ready")
	e.create(unready)
	e.create(e.pod("crash", "--exit-after=1s", "--exit-code=7"))
	stalled := "stalled-" + e.n.kind
	pushHello(e, e.n.registry, stalled)
	e.n.registry.Stall(stalled)
	e.Cleanup(func() { e.n.registry.Release(stalled) })
	pulled := e.pod("pulled")
	pulled.Spec.Containers[0].Image = e.n.registry.Name(stalled + ":v1")
	e.create(pulled)

	e.why("unmounted", "the volume", first(func(r reason) bool {
		return r.Owner == "volume" && strings.Contains(r.Step+r.LastError, "nowhere") && strings.Contains(r.Message, "conf") && !r.Since.IsZero()
	}))
	// The error is that of the first failure: on a slow machine nobody listened yet.
	e.why("unready", "the probe", first(func(r reason) bool {
		return r.Owner == "container" && r.Step == "readiness probe" && r.Container == "hello" && !r.Since.IsZero() &&
			(strings.Contains(r.LastError, "500") || strings.Contains(r.LastError, "connection refused"))
	}))
	e.why("crash", "the back-off", first(func(r reason) bool {
		return r.Owner == "runtime" && r.Step == "back-off" && r.Container == "hello" && !r.NextRetry.IsZero() && r.LastError != ""
	}))
	// podworker publishes every five seconds how far a pull has come.
	e.why("pulled", "the pull", first(func(r reason) bool {
		return r.Owner == "runtime" && r.Step == "pull" && strings.Contains(r.Message, "image "+e.n.registry.Name(stalled+":v1")+" is being pulled for ") &&
			strings.Contains(r.Message, "image store ")
	}))
	e.awaitRunning("fine", usual)
	e.why("fine", "nothing", func(all []reason) error {
		if len(all) != 0 {
			return fmt.Errorf("it is ready")
		}
		return nil
	})
	e.n.registry.Release(stalled)
	e.awaitRunning("pulled", usual)
	if out := e.n.TryVerb(e.Context(), "why", e.ns+"/nobody"); !strings.Contains(out, "no pod") {
		e.Errorf("sextant why of no pod: %q", out)
	}
}

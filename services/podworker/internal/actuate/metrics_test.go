// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"math"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/test/fakecri"
	"github.com/sextant-node/sextant/test/measure"
)

func TestMetrics(t *testing.T) {
	n := start(t, false)
	measure.Expect(t, n.metrics, map[string]float64{
		"kubelet_started_pods_total": 0, "kubelet_started_pods_errors_total": 0,
		"kubelet_started_user_namespaced_pods_total": 0, "kubelet_started_user_namespaced_pods_errors_total": 0,
		"kubelet_imagemanager_ondisk_pullintents": 0, "kubelet_imagemanager_ondisk_pulledrecords": 0,
		"kubelet_image_volume_requested_total": 0,
		// With labels there is nothing before it happens.
		`kubelet_run_podsandbox_errors_total{runtime_handler=""}`: math.NaN(),
	})
	n.rt.Fail(fakecri.Match{Method: "RunPodSandbox"}, 1, status.Error(codes.Unavailable, "not now"))
	if _, err := n.RunSandbox(n.ctx(), SandboxSpec{Pod: web()}); err == nil {
		t.Fatal("no failure")
	}
	spec := n.up(web())
	n.rt.Fail(fakecri.Match{Method: "CreateContainer"}, 1, status.Error(codes.Unavailable, "not now"))
	if _, err := n.StartContainer(n.ctx(), spec); err == nil {
		t.Fatal("no failure")
	}
	if _, err := n.StartContainer(n.ctx(), spec); err != nil {
		t.Fatal(err)
	}
	again := ImageSpec{Pod: web(), Container: "web", Image: "fake/sleep", Policy: v1.PullIfNotPresent}
	if _, err := n.EnsureImage(n.ctx(), again); err != nil {
		t.Fatal(err)
	}
	n.rt.Withhold("r.example/none:1")
	missing := ImageSpec{Pod: web(), Container: "web", Image: "r.example/none:1", Policy: v1.PullAlways}
	if _, err := n.EnsureImage(n.ctx(), missing); err == nil {
		t.Fatal("no failure")
	}
	missing.Policy = v1.PullNever
	if _, err := n.EnsureImage(n.ctx(), missing); err == nil {
		t.Fatal("no failure")
	}
	measure.Expect(t, n.metrics, map[string]float64{
		"kubelet_started_pods_total": 2, "kubelet_started_pods_errors_total": 1,
		`kubelet_run_podsandbox_duration_seconds{runtime_handler=""}`:                                                                2,
		`kubelet_run_podsandbox_errors_total{runtime_handler=""}`:                                                                    1,
		`kubelet_started_containers_total{container_type="container"}`:                                                               4,
		`kubelet_started_containers_errors_total{code="CreateContainerError",container_type="container"}`:                            1,
		`kubelet_started_containers_errors_total{code="ErrImagePull",container_type="container"}`:                                    1,
		`kubelet_image_manager_ensure_image_requests_total{present_locally="false",pull_policy="ifnotpresent",pull_required="true"}`: 1,
		`kubelet_image_manager_ensure_image_requests_total{present_locally="true",pull_policy="ifnotpresent",pull_required="false"}`: 1,
		`kubelet_image_manager_ensure_image_requests_total{present_locally="unknown",pull_policy="always",pull_required="true"}`:     1,
		`kubelet_image_manager_ensure_image_requests_total{present_locally="false",pull_policy="never",pull_required="unknown"}`:     1,
		`kubelet_imagemanager_image_mustpull_checks_total{result="credentialRecordFound"}`:                                           1,
		"kubelet_imagemanager_ondisk_pulledrecords":                                                                                  1, "kubelet_imagemanager_ondisk_pullintents": 0,
	})
}

// TestStartsOfPodsWithUserNamespaces: whatever fails of a start is one failure of it; what
// fails later, or is of a pod with the node's users, is none.
func TestStartsOfPodsWithUserNamespaces(t *testing.T) {
	no := false
	userns := func(p *v1.Pod) { p.Spec.HostUsers = &no }
	for name, tc := range map[string]struct {
		method            string
		edits             []func(*v1.Pod)
		started, failures float64
	}{
		"succeeds":                {"", []func(*v1.Pod){userns}, 1, 0},
		"sandbox":                 {"RunPodSandbox", []func(*v1.Pod){userns}, 1, 1},
		"image":                   {"PullImage", []func(*v1.Pod){userns}, 1, 1},
		"container":               {"CreateContainer", []func(*v1.Pod){userns}, 1, 1},
		"start":                   {"StartContainer", []func(*v1.Pod){userns}, 1, 1},
		"with the node's users":   {"StartContainer", nil, 0, 0},
		"image before the others": {"early", []func(*v1.Pod){userns}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, false)
			n.facts.node.Handlers = map[string]HandlerFeatures{"": {UserNamespaces: true}}
			p := web(tc.edits...)
			sandbox := SandboxSpec{Pod: p}
			image := ImageSpec{Pod: p, Container: "web", Image: "fake/sleep", Policy: v1.PullAlways}
			moon := status.Error(codes.Internal, "the moon is in the way")
			if tc.method == "early" {
				n.rt.Fail(fakecri.Match{Method: "PullImage"}, 1, moon)
				if _, err := n.EnsureImage(n.ctx(), image); err == nil {
					t.Fatal("no failure")
				}
			} else if tc.method != "" {
				n.rt.Fail(fakecri.Match{Method: tc.method}, 2, moon)
			}
			id, sandboxErr := n.RunSandbox(n.ctx(), sandbox)
			if (sandboxErr != nil) != (tc.method == "RunPodSandbox") {
				t.Fatal(sandboxErr)
			}
			failed := 0
			for range 4 { // tries of the same start, and restarts
				ref, err := n.EnsureImage(n.ctx(), image)
				if err == nil && sandboxErr == nil {
					_, err = n.StartContainer(n.ctx(), ContainerSpec{Sandbox: sandbox, SandboxID: id, Container: "web", ImageRef: ref, RestartCount: failed})
				}
				if failed++; err == nil {
					break
				}
			}
			// What fails later is no start.
			n.rt.Fail(fakecri.Match{Method: "PullImage"}, 1, moon)
			if _, err := n.EnsureImage(n.ctx(), image); err == nil {
				t.Fatal("no failure")
			}
			measure.Expect(t, n.metrics, map[string]float64{
				"kubelet_started_user_namespaced_pods_total":        tc.started,
				"kubelet_started_user_namespaced_pods_errors_total": tc.failures,
			})
		})
	}
}

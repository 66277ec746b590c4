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
	measure.Expect(t, n.metrics, map[string]float64{
		"kubelet_started_pods_total": 2, "kubelet_started_pods_errors_total": 1,
		`kubelet_run_podsandbox_duration_seconds{runtime_handler=""}`:                                                                2,
		`kubelet_run_podsandbox_errors_total{runtime_handler=""}`:                                                                    1,
		`kubelet_started_containers_total{container_type="container"}`:                                                               3,
		`kubelet_started_containers_errors_total{code="CreateContainerError",container_type="container"}`:                            1,
		`kubelet_started_containers_errors_total{code="ErrImagePull",container_type="container"}`:                                    1,
		`kubelet_image_manager_ensure_image_requests_total{present_locally="false",pull_policy="ifnotpresent",pull_required="true"}`: 1,
		`kubelet_image_manager_ensure_image_requests_total{present_locally="true",pull_policy="ifnotpresent",pull_required="false"}`: 1,
		`kubelet_image_manager_ensure_image_requests_total{present_locally="unknown",pull_policy="always",pull_required="true"}`:     1,
		`kubelet_imagemanager_image_mustpull_checks_total{result="credentialRecordFound"}`:                                           1,
		"kubelet_imagemanager_ondisk_pulledrecords":                                                                                  1, "kubelet_imagemanager_ondisk_pullintents": 0,
	})
}

// SPDX-License-Identifier: Apache-2.0

package resource_test

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/sextant-node/sextant/test/deviceplugin"
	"github.com/sextant-node/sextant/test/measure"
)

// podResourcesOf dials the socket as monitoring agents do.
func podResourcesOf(r *rig) podresourcesv1.PodResourcesListerClient {
	r.Helper()
	conn, err := grpc.NewClient("unix:"+filepath.Join(r.machine, "pod-resources", "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = conn.Close() })
	return podresourcesv1.NewPodResourcesListerClient(conn)
}

// TestPodResources: the API has what pods hold, from the first answer of a life on, while
// no other service has answered.
func TestPodResources(t *testing.T) {
	r := pinned(t)
	p := deviceplugin.Start(t, filepath.Join(r.machine, "device-plugins"), gpu, []*pluginapi.Device{
		deviceplugin.Device("a", 0), deviceplugin.Device("b", 0, 1), deviceplugin.Device("c"),
	})
	r.counts("3", "3")
	api := podResourcesOf(r)
	wait := grpc.WaitForReady(true)
	whole := guaranteed("one", "1")
	whole.Spec.Containers[0].Resources.Limits[gpu] = wanting("", 2).Spec.Containers[0].Resources.Limits[gpu]
	whole.Spec.Containers[0].Resources.Requests = whole.Spec.Containers[0].Resources.Limits
	if got := r.admitted(whole); got != "a,b" {
		t.Fatalf("devices %s", got)
	}
	want := &podresourcesv1.ListPodResourcesResponse{}
	if err := prototext.Unmarshal([]byte(`pod_resources: {name: "name-one" namespace: "ns" containers: {name: "c" cpu_ids: 1
		devices: {resource_name: "example.com/gpu" device_ids: "a" topology: {nodes: {ID: 0}}}
		devices: {resource_name: "example.com/gpu" device_ids: "b" topology: {nodes: {ID: 0}}}
		devices: {resource_name: "example.com/gpu" device_ids: "b" topology: {nodes: {ID: 1}}}}}`), want); err != nil {
		t.Fatal(err)
	}
	has := func() {
		t.Helper()
		got, err := api.List(t.Context(), &podresourcesv1.ListPodResourcesRequest{}, wait)
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("%v, %v", got, err)
		}
		one, err := api.Get(t.Context(), &podresourcesv1.GetPodResourcesRequest{PodName: "name-one", PodNamespace: "ns"})
		if err != nil || !proto.Equal(one.GetPodResources(), want.GetPodResources()[0]) {
			t.Errorf("%v, %v", one, err)
		}
	}
	has()
	if _, err := api.Get(t.Context(), &podresourcesv1.GetPodResourcesRequest{PodName: "two", PodNamespace: "ns"}); err == nil ||
		!strings.Contains(err.Error(), "pod two in namespace ns not found") {
		t.Errorf("a pod that does not exist: %v", err)
	}
	p.Set(deviceplugin.Device("a", 0), &pluginapi.Device{ID: "c", Health: pluginapi.Unhealthy})
	r.counts("2", "1")
	free, err := api.GetAllocatableResources(t.Context(), &podresourcesv1.AllocatableResourcesRequest{})
	if err != nil || len(free.GetDevices()) != 1 || free.GetDevices()[0].GetDeviceIds()[0] != "a" || len(free.GetCpuIds()) != 3 {
		t.Errorf("allocatable: %v, %v", free, err)
	}
	for metric, want := range map[string]float64{
		`kubelet_pod_resources_endpoint_requests_total{server_api_version="v1"}`:           4,
		`kubelet_pod_resources_endpoint_requests_list{server_api_version="v1"}`:            1,
		`kubelet_pod_resources_endpoint_requests_get{server_api_version="v1"}`:             2,
		`kubelet_pod_resources_endpoint_requests_get_allocatable{server_api_version="v1"}`: 1,
		`kubelet_pod_resources_endpoint_errors_get{server_api_version="v1"}`:               1,
	} {
		if got := measure.Value(t, r.kit.Metrics, metric); got != want {
			t.Errorf("%s is %v, want %v", metric, got, want)
		}
	}
	r.stop()
	r.start(nil)
	has()
	var refused error
	for range 2000 { // far more than a second's in a burst
		if _, refused = api.List(t.Context(), &podresourcesv1.ListPodResourcesRequest{}); refused != nil {
			break
		}
	}
	if status.Code(refused) != codes.ResourceExhausted || status.Convert(refused).Message() != "rejected by rate limit" {
		t.Errorf("too many calls: %v", refused)
	}
}

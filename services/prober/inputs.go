// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/podstatus"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
)

// observed is a pod's record, decoded once.
type observed struct {
	containers []*runtimeapi.ContainerStatus
	ips        []string // in the runtime's order
	// unread: the runtime has not answered for this pod since pleg started.
	unread bool
}

// decodePod reads a pod, of which what no probe needs is left out: of most pods all but the
// names. A manifest has no status: the address of the host is in that of the mirror pod.
func decodePod(_ string, desired *configv1.DesiredPod) (*v1.Pod, error) {
	all := &v1.Pod{}
	if err := all.Unmarshal(desired.GetPod()); err != nil {
		return nil, err
	}
	p := &v1.Pod{ObjectMeta: all.ObjectMeta}
	p.Status.HostIP = all.Status.HostIP
	if data := desired.GetMirror(); p.Status.HostIP == "" && len(data) > 0 {
		mirror := &v1.Pod{}
		if err := mirror.Unmarshal(data); err != nil {
			return nil, fmt.Errorf("mirror: %w", err)
		}
		p.Status.HostIP = mirror.Status.HostIP
	}
	if probed(all) {
		p.Spec = all.Spec
	}
	return p, nil
}

// probed reports whether a container of the pod has a probe.
func probed(p *v1.Pod) bool {
	for _, c := range pod.Containers(p) {
		if c.StartupProbe != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil {
			return true
		}
	}
	return false
}

// decodeRecord reads a record, of whose containers only what a probe needs is kept.
func decodeRecord(_ string, r *plegv1.PodRecord) (*observed, error) {
	o := &observed{unread: r.GetError() != "" && len(r.GetSandboxes())+len(r.GetContainers()) == 0}
	for _, data := range r.GetContainers() {
		c := &runtimeapi.ContainerStatus{}
		if err := proto.Unmarshal(data, c); err != nil {
			return nil, fmt.Errorf("container: %w", err)
		}
		o.containers = append(o.containers, &runtimeapi.ContainerStatus{
			Id: c.GetId(), Metadata: c.GetMetadata(), State: c.GetState(), StartedAt: c.GetStartedAt(),
		})
	}
	for _, data := range r.GetSandboxes() {
		s := &runtimeapi.PodSandboxStatus{}
		if err := proto.Unmarshal(data, s); err != nil {
			return nil, fmt.Errorf("sandbox: %w", err)
		}
		if n := s.GetNetwork(); s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && len(o.ips) == 0 && n.GetIp() != "" {
			o.ips = []string{n.GetIp()}
			for _, more := range n.GetAdditionalIps() {
				o.ips = append(o.ips, more.GetIp())
			}
		}
	}
	return o, nil
}

// primary is the address that the pod's status has as its own: the first of the family of
// its host's, of which the runtime knows nothing; the runtime's first for no host, "" for none.
func (o *observed) primary(hostIP string) string {
	ips := o.ips
	if hostIP != "" {
		ips = podstatus.SortIPs(ips, []string{hostIP})
	}
	if len(ips) == 0 {
		return ""
	}
	return ips[0]
}

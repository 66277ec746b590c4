// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/stats"
)

// desired is an item of config.pods. The pod is kept encoded, which is smaller, and decoded
// for each request that needs it.
type desired struct {
	packed               []byte
	namespace, name, uid string
	deleted              bool
	// static: the pod is not from the API server.
	static bool
	// mirror is the UID of a static pod's mirror pod at the API server.
	mirror string
	// apart: the pod's status is in config.statuses.
	apart bool
}

func decodeDesired(_ string, m *configv1.DesiredPod) (*desired, error) {
	p, err := unpack(m.GetPod())
	if err != nil {
		return nil, err
	}
	d := &desired{
		packed: m.GetPod(), namespace: p.Namespace, name: p.Name, uid: string(p.UID), deleted: p.DeletionTimestamp != nil,
		static: m.GetSource() != "api", apart: m.GetStatusApart(),
	}
	if data := m.GetMirror(); len(data) > 0 {
		mirror, err := unpack(data)
		if err != nil {
			return nil, fmt.Errorf("mirror: %w", err)
		}
		d.mirror = string(mirror.UID)
	}
	return d, nil
}

// decodeStatus reads an item of config.statuses, and leaves it packed.
func decodeStatus(_ string, m *configv1.Object) ([]byte, error) {
	_, err := unpack(m.GetObject())
	return m.GetObject(), err
}

func unpack(packed []byte) (*v1.Pod, error) {
	p := &v1.Pod{}
	return p, p.Unmarshal(packed)
}

// decodeRunning reads of an item of pleg.pods what runs, newest first.
func decodeRunning(uid string, record *plegv1.PodRecord) (*stats.Pod, error) {
	p := &stats.Pod{UID: uid, Namespace: record.GetNamespace(), Name: record.GetName()}
	for _, data := range record.GetSandboxes() {
		s := &runtimeapi.PodSandboxStatus{}
		if err := proto.Unmarshal(data, s); err != nil {
			return nil, fmt.Errorf("sandbox: %w", err)
		}
		if created := time.Unix(0, s.GetCreatedAt()); created.After(p.Created) {
			p.Created = created
		}
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			p.Sandboxes = append(p.Sandboxes, s.GetId())
		}
	}
	for _, data := range record.GetContainers() {
		c := &runtimeapi.ContainerStatus{}
		if err := proto.Unmarshal(data, c); err != nil {
			return nil, fmt.Errorf("container: %w", err)
		}
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			p.Containers = append(p.Containers, stats.Container{
				ID: c.GetId(), Name: c.GetMetadata().GetName(), Image: c.GetImage().GetImage(), Created: time.Unix(0, c.GetCreatedAt()),
			})
		}
	}
	return p, nil
}

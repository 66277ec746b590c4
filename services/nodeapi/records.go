package nodeapi

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
)

// observed is what the runtime has of a pod, newest first.
type observed struct {
	uid, namespace, name string
	sandboxes            []observedSandbox
	containers           []observedContainer
}

type observedSandbox struct {
	id      string
	ready   bool
	created time.Time
}

type observedContainer struct {
	id, name, image string
	running         bool
	created         time.Time
}

func decodeObserved(uid string, value []byte) (*observed, error) {
	record := &plegv1.PodRecord{}
	if err := proto.Unmarshal(value, record); err != nil {
		return nil, err
	}
	o := &observed{uid: uid, namespace: record.GetNamespace(), name: record.GetName()}
	for _, data := range record.GetSandboxes() {
		s := &runtimeapi.PodSandboxStatus{}
		if err := proto.Unmarshal(data, s); err != nil {
			return nil, fmt.Errorf("sandbox: %w", err)
		}
		o.sandboxes = append(o.sandboxes, observedSandbox{
			id: s.GetId(), ready: s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY, created: time.Unix(0, s.GetCreatedAt()),
		})
	}
	for _, data := range record.GetContainers() {
		c := &runtimeapi.ContainerStatus{}
		if err := proto.Unmarshal(data, c); err != nil {
			return nil, fmt.Errorf("container: %w", err)
		}
		o.containers = append(o.containers, observedContainer{
			id: c.GetId(), name: c.GetMetadata().GetName(), image: c.GetImage().GetImage(),
			running: c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING, created: time.Unix(0, c.GetCreatedAt()),
		})
	}
	return o, nil
}

// running is the running container of a name.
func (o *observed) running(container string) (observedContainer, bool) {
	for _, c := range o.containers {
		if c.running && c.name == container {
			return c, true
		}
	}
	return observedContainer{}, false
}

// ready is the pod's sandbox.
func (o *observed) ready() (id string, ok bool) {
	for _, s := range o.sandboxes {
		if s.ready {
			return s.id, true
		}
	}
	return "", false
}

// alive: something of the pod runs.
func (o *observed) alive() bool {
	if _, ok := o.ready(); ok {
		return true
	}
	for _, c := range o.containers {
		if c.running {
			return true
		}
	}
	return false
}

// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate"
	"github.com/sextant-node/sextant/services/podworker/internal/step"
)

// lookups gives actuators the facts of other services.
type lookups struct {
	in *Inputs
	// nodeName is used until the configuration tells.
	nodeName string
	rootDir  string
	config   *currentConfig
}

var errNotRead = errors.New("has not been read yet")

// find looks an object up: known, known to be absent, or not known.
func find(m *feed.Replica[*object], kind, namespace, name, resource string) (*object, error) {
	o, ok := m.Get(kind + "/" + namespace + "/" + name)
	switch {
	case !ok:
		return nil, fmt.Errorf("%s %s/%s %w", kind, namespace, name, errNotRead)
	case !o.known && o.err != "":
		return nil, fmt.Errorf("%s %s/%s: %s", kind, namespace, name, o.err)
	case !o.known:
		return nil, fmt.Errorf("%s %s/%s %w", kind, namespace, name, errNotRead)
	case o.configMap == nil && o.secret == nil && o.class == nil && o.node == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
	}
	return o, nil
}

// objectPatience is how long an actuator waits for an object that has not been read yet: a pod
// may come before what it names. The kubelet's caches wait as long.
const objectPatience = time.Second

// await is find that waits.
func await(m *feed.Replica[*object], kind, namespace, name, resource string) (*object, error) {
	for end := time.Now().Add(objectPatience); ; {
		o, err := find(m, kind, namespace, name, resource)
		if !errors.Is(err, errNotRead) || time.Now().After(end) {
			return o, err
		}
		<-time.After(10 * time.Millisecond)
	}
}

// ConfigMap implements actuate.Lookups.
func (l *lookups) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	o, err := await(l.in.Objects, "ConfigMap", namespace, name, "configmap")
	if err != nil {
		return nil, err
	}
	return o.configMap, nil
}

// Secret implements actuate.Lookups.
func (l *lookups) Secret(namespace, name string) (*v1.Secret, error) {
	o, err := await(l.in.Secrets, "Secret", namespace, name, "secret")
	if err != nil {
		return nil, err
	}
	return o.secret, nil
}

// DockerConfig implements actuate.Lookups. config hands the file on, if there is one; while
// it has not, the file itself has to do, where podworker may read it.
func (l *lookups) DockerConfig() ([]byte, error) {
	o, err := find(l.in.Secrets, "Secret", "", house.DockerConfig, "secret")
	switch {
	case errors.Is(err, errNotRead):
		content, err := os.ReadFile(filepath.Join(l.rootDir, house.DockerConfig))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return content, err
	case err != nil:
		return nil, err
	}
	return o.secret.Data[v1.DockerConfigJsonKey], nil
}

// servicesKnown reports whether the Services there are can be relied upon. While
// the API server has not been read at all, the pods are those of before, and so
// are the Services: a node that starts without its API server runs what it ran.
func (in *Inputs) servicesKnown() bool {
	if in.Objects.Listed() {
		return true
	}
	api, ok := in.Sources.Get(pod.SourceAPI)
	return in.Objects.Synced() && in.Sources.Synced() && (!ok || !api.GetComplete())
}

// Services implements actuate.Lookups.
func (l *lookups) Services(namespace string) ([]*v1.Service, error) {
	if !l.in.servicesKnown() {
		return nil, errors.New("services have not been read yet")
	}
	var found []*v1.Service
	for _, o := range l.in.Objects.Items() {
		if o.service != nil && (o.service.Namespace == namespace || o.service.Namespace == v1.NamespaceDefault) {
			found = append(found, o.service)
		}
	}
	slices.SortFunc(found, func(a, b *v1.Service) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return found, nil
}

// Node implements actuate.Lookups.
func (l *lookups) Node() actuate.NodeFacts {
	facts := actuate.NodeFacts{Name: l.nodeName, CgroupVersion: 2}
	if c := l.config.Config(); c != nil {
		facts.Name, facts.IPs = c.Node.Name, specific(c.Node.IPs)
	}
	if o, ok := l.in.Objects.Get("Node//" + facts.Name); ok && o.node != nil && len(facts.IPs) == 0 {
		for _, a := range o.node.Status.Addresses {
			if a.Type == v1.NodeInternalIP {
				facts.IPs = append(facts.IPs, a.Address)
			}
		}
	}
	if node, ok := l.in.Node.Get("node"); ok {
		facts.Allocatable = quantities(node.GetAllocatable())
		memory := quantities(node.GetCapacity())[v1.ResourceMemory]
		facts.MemoryCapacity, facts.SwapCapacity = memory.Value(), node.GetSwapCapacityBytes()
		if v := node.GetCgroupVersion(); v != 0 {
			facts.CgroupVersion = int(v)
		}
	}
	if state, ok := l.in.Runtime.Get("runtime"); ok && len(state.status.GetRuntimeHandlers()) > 0 {
		facts.Handlers = map[string]actuate.HandlerFeatures{}
		for _, h := range state.status.GetRuntimeHandlers() {
			facts.Handlers[h.GetName()] = actuate.HandlerFeatures{
				RecursiveReadOnly: h.GetFeatures().GetRecursiveReadOnlyMounts(),
				UserNamespaces:    h.GetFeatures().GetUserNamespaces(),
			}
		}
	}
	return facts
}

// specific are addresses that name a host: --node-ip may also only name a family.
func specific(ips []string) []string {
	return slices.DeleteFunc(slices.Clone(ips), func(ip string) bool { return ip == "0.0.0.0" || ip == "::" })
}

func quantities(in map[string]string) v1.ResourceList {
	list := v1.ResourceList{}
	for name, text := range in {
		if q, err := resource.ParseQuantity(text); err == nil {
			list[v1.ResourceName(name)] = q
		}
	}
	return list
}

// handler is the runtime handler of a pod's RuntimeClass.
func (l *lookups) handler(p *v1.Pod) step.Handler {
	if p == nil || p.Spec.RuntimeClassName == nil || *p.Spec.RuntimeClassName == "" {
		return step.Handler{}
	}
	name := *p.Spec.RuntimeClassName
	o, err := find(l.in.Objects, "RuntimeClass", "", name, "runtimeclasses.node.k8s.io")
	if err != nil {
		return step.Handler{Waiting: fmt.Sprintf("failed to look up RuntimeClass %q: %v", name, err), Unread: errors.Is(err, errNotRead)}
	}
	return step.Handler{Name: o.class.Handler}
}

// named are the keys of the API objects that a pod's containers are made from: what
// their environments name, the RuntimeClass, and the node.
func named(p *v1.Pod) map[string]bool {
	keys := map[string]bool{"Node//" + p.Spec.NodeName: true}
	add := func(kind, name string) { keys[kind+"/"+p.Namespace+"/"+name] = true }
	for _, c := range pod.Containers(p) {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				add("ConfigMap", from.ConfigMapRef.Name)
			}
			if from.SecretRef != nil {
				add("Secret", from.SecretRef.Name)
			}
		}
		for _, v := range c.Env {
			if v.ValueFrom == nil {
				continue
			}
			if ref := v.ValueFrom.ConfigMapKeyRef; ref != nil {
				add("ConfigMap", ref.Name)
			}
			if ref := v.ValueFrom.SecretKeyRef; ref != nil {
				add("Secret", ref.Name)
			}
		}
	}
	if class := p.Spec.RuntimeClassName; class != nil {
		keys["RuntimeClass//"+*class] = true
	}
	return keys
}

// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/sextant-node/sextant/services/config/internal/cluster"
	"github.com/sextant-node/sextant/services/config/internal/refs"
)

// masterService is in the environment of every container.
var masterService = refs.Ref{Kind: refs.Service, Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// services are all services of the cluster that have an address.
type services struct {
	all        map[refs.Ref]Object
	namespaces map[string]bool // wanted
	keep       bool
	heard      bool
}

func newServices() services {
	return services{all: map[refs.Ref]Object{}, namespaces: map[string]bool{}, keep: true}
}

// WantServices says of which namespaces services are needed; the one named
// kubernetes always is. With keep, those told stay even if not needed.
func (m *Manager) WantServices(namespaces map[string]bool, keep bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.services.keep == keep && maps.Equal(m.services.namespaces, namespaces) {
		return
	}
	m.services.namespaces, m.services.keep = namespaces, keep
	for ref, it := range m.items {
		if ref.Kind == refs.Service && !m.serviceWanted(ref) && !keep {
			m.drop(it)
		}
	}
	for ref := range m.services.all {
		m.tellService(ref)
	}
}

// ServicesHeard reports whether all services were read since the process started.
func (m *Manager) ServicesHeard() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.services.heard
}

func (m *Manager) serviceWanted(ref refs.Ref) bool {
	return ref == masterService || m.services.namespaces[ref.Namespace]
}

// tellService brings one item in line with the service.
func (m *Manager) tellService(ref refs.Ref) {
	it, told := m.items[ref]
	object, exists := m.services.all[ref]
	switch {
	case !exists && told:
		m.drop(it)
	case exists && m.serviceWanted(ref) && (!told || it.object != object):
		it = newItem(ref)
		it.object = object
		m.items[ref] = it
		m.tell(it, false, "")
	}
}

func (m *Manager) followServices(ctx context.Context, client kubernetes.Interface) {
	cluster.Follow(ctx, cluster.Resource{
		Client: client.CoreV1().RESTClient(), Name: "services", Fields: fields.Everything(), Type: &v1.Service{},
	}, (*serviceStore)(m), func(err error) {
		if err != nil && answered(err) {
			m.cfg.Log.Warn("services cannot be read", "error", err.Error())
		}
	}, m.cfg.Log)
}

// serviceStore is the reflector's side.
type serviceStore Manager

func serviceRef(o metav1.Object) refs.Ref {
	return refs.Ref{Kind: refs.Service, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// addressed reports whether containers can be told of a service.
func addressed(s *v1.Service) bool {
	return s.Spec.ClusterIP != "" && s.Spec.ClusterIP != v1.ClusterIPNone
}

// Add implements cache.ReflectorStore.
func (s *serviceStore) Add(object any) error {
	service, ok := object.(*v1.Service)
	if !ok {
		return nil
	}
	if !addressed(service) {
		return s.Delete(object)
	}
	trim(service)
	m := (*Manager)(s)
	m.mu.Lock()
	defer m.mu.Unlock()
	ref := serviceRef(service)
	m.services.all[ref] = service
	m.tellService(ref)
	return nil
}

// trim drops what environments do not need.
func trim(s *v1.Service) {
	s.ManagedFields, s.Annotations, s.Labels = nil, nil, nil
	s.Status = v1.ServiceStatus{}
}

// Update implements cache.ReflectorStore.
func (s *serviceStore) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *serviceStore) Delete(object any) error {
	service, ok := object.(*v1.Service)
	if !ok {
		return nil
	}
	m := (*Manager)(s)
	m.mu.Lock()
	defer m.mu.Unlock()
	ref := serviceRef(service)
	delete(m.services.all, ref)
	m.tellService(ref)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *serviceStore) Replace(objects []any, _ string) error {
	m := (*Manager)(s)
	m.mu.Lock()
	all := make(map[refs.Ref]Object, len(objects))
	for _, o := range objects {
		if service, ok := o.(*v1.Service); ok && addressed(service) {
			trim(service)
			all[serviceRef(service)] = service
		}
	}
	gone := m.services.all
	m.services.all = all
	for ref := range gone {
		m.tellService(ref)
	}
	for ref := range all {
		m.tellService(ref)
	}
	first := !m.services.heard
	m.services.heard = true
	m.mu.Unlock()
	if first {
		m.cfg.Changed()
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *serviceStore) Resync() error { return nil }

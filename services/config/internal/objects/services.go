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

// services are all services of the cluster that have an address. It is a
// cache.ReflectorStore of client-go; its fields are guarded by the cache's mutex.
type services struct {
	cache      *cache
	all        map[refs.Ref]Object
	namespaces map[string]bool // wanted
	keep       bool
	heard      bool
}

func newServices(c *cache) *services {
	return &services{cache: c, all: map[refs.Ref]Object{}, namespaces: map[string]bool{}, keep: true}
}

// want says of which namespaces services are needed; the one named kubernetes always is.
// With keep, those told stay even if not needed.
func (s *services) want(namespaces map[string]bool, keep bool) {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	if s.keep == keep && maps.Equal(s.namespaces, namespaces) {
		return
	}
	s.namespaces, s.keep = namespaces, keep
	for ref, it := range s.cache.items {
		if ref.Kind == refs.Service && !s.wanted(ref) && !keep {
			s.cache.drop(it)
		}
	}
	for ref := range s.all {
		s.tell(ref)
	}
}

func (s *services) wanted(ref refs.Ref) bool {
	return ref == masterService || s.namespaces[ref.Namespace]
}

// tell brings one item in line with the service.
func (s *services) tell(ref refs.Ref) {
	it, told := s.cache.items[ref]
	object, exists := s.all[ref]
	switch {
	case !exists && told:
		s.cache.drop(it)
	case exists && s.wanted(ref) && (!told || it.object != object):
		it = newItem(ref)
		it.object = object
		s.cache.items[ref] = it
		s.cache.tell(it, false, "")
	}
}

func (s *services) follow(ctx context.Context, client kubernetes.Interface) {
	cluster.Follow(ctx, cluster.Resource{
		Client: client.CoreV1().RESTClient(), Name: "services", Fields: fields.Everything(), Type: &v1.Service{},
	}, s, func(err error) {
		if err != nil && answered(err) {
			s.cache.cfg.Log.Warn("services cannot be read", "error", err.Error())
		}
	}, s.cache.cfg.Log)
}

func serviceRef(o metav1.Object) refs.Ref {
	return refs.Ref{Kind: refs.Service, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// addressed reports whether containers can be told of a service.
func addressed(s *v1.Service) bool {
	return s.Spec.ClusterIP != "" && s.Spec.ClusterIP != v1.ClusterIPNone
}

// Add implements cache.ReflectorStore.
func (s *services) Add(object any) error {
	service, ok := object.(*v1.Service)
	if !ok {
		return nil
	}
	if !addressed(service) {
		return s.Delete(object)
	}
	trim(service)
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	ref := serviceRef(service)
	s.all[ref] = service
	s.tell(ref)
	return nil
}

// trim drops what environments do not need.
func trim(s *v1.Service) {
	s.ManagedFields, s.Annotations, s.Labels = nil, nil, nil
	s.Status = v1.ServiceStatus{}
}

// Update implements cache.ReflectorStore.
func (s *services) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *services) Delete(object any) error {
	service, ok := object.(*v1.Service)
	if !ok {
		return nil
	}
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	ref := serviceRef(service)
	delete(s.all, ref)
	s.tell(ref)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *services) Replace(objects []any, _ string) error {
	s.cache.mu.Lock()
	all := make(map[refs.Ref]Object, len(objects))
	for _, o := range objects {
		if service, ok := o.(*v1.Service); ok && addressed(service) {
			trim(service)
			all[serviceRef(service)] = service
		}
	}
	gone := s.all
	s.all = all
	for ref := range gone {
		s.tell(ref)
	}
	for ref := range all {
		s.tell(ref)
	}
	first := !s.heard
	s.heard = true
	s.cache.mu.Unlock()
	if first {
		s.cache.cfg.Changed()
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *services) Resync() error { return nil }

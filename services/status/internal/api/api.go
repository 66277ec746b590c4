// SPDX-License-Identifier: Apache-2.0

// Package api is the way to the API server: clients made of the credential that
// config hands out, and the few calls status makes.
//
// It owns four clients that share no connection, so that a stuck one holds up
// nothing else: for pods, for events, for the Node, and for its Lease. When the
// credential changes new clients take over and the old connections are closed; so are a
// client's connections at the second request in a row that is not answered. Rates
// are not limited here; those who send do that, where they can still choose what
// to send. An API server that is away is normal: every call says so in its error.
package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // the clients are measured
)

// Timeouts of one request.
const (
	// Timeout of pods and events.
	Timeout = 30 * time.Second
	// HeartbeatTimeout of the Node and its Lease; the lease's duration if that is
	// shorter.
	HeartbeatTimeout = 10 * time.Second
)

// Config is what clients are made of.
type Config struct {
	// Standalone: there is no API server.
	Standalone bool
	// Kubeconfig is the credential, self-contained; empty while there is none.
	Kubeconfig string
	// ContentType of requests (KubeletConfiguration contentType).
	ContentType string
	// Lease is the duration of the lease.
	Lease time.Duration
	// UserAgent of all clients.
	UserAgent string
}

// Clients are made of one credential.
type Clients struct {
	// Generation grows with each credential.
	Generation int
	// Host is the API server's address.
	Host   string
	Pods   corev1.CoreV1Interface
	Events corev1.CoreV1Interface
	// Heartbeat is for the Node and its CSINode, Lease for the Lease alone.
	Heartbeat kubernetes.Interface
	Lease     kubernetes.Interface

	dialers []*connrotation.Dialer
}

// Source makes clients. Safe for concurrent use.
type Source struct {
	mu      sync.Mutex
	cfg     Config
	made    Config // what clients were made of
	clients *Clients
	count   int
}

var (
	// ErrStandalone says that there is no kubeconfig, and so no API server.
	ErrStandalone = errors.New("standalone: no kubeconfig is given")
	// ErrNoCredential says that config has none yet.
	ErrNoCredential = errors.New("no credential for the API server yet")
)

// NewSource makes a source that has made nothing yet.
func NewSource(cfg Config) *Source { return &Source{cfg: cfg} }

// Configure changes how the next clients are made.
func (s *Source) Configure(cfg Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg = cfg
}

// Clients are those of the credential as it is now. One that is of no use
// leaves the former clients in place.
func (s *Source) Clients() (*Clients, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.cfg.Standalone:
		return nil, ErrStandalone
	case s.cfg.Kubeconfig == "":
		return nil, ErrNoCredential
	case s.clients != nil && s.made == s.cfg:
		return s.clients, nil
	}
	made, err := s.build()
	if err != nil {
		if s.clients != nil {
			return s.clients, nil
		}
		return nil, err
	}
	if s.clients != nil {
		for _, d := range s.clients.dialers {
			d.CloseAll()
		}
	}
	s.clients, s.made = made, s.cfg
	return made, nil
}

func (s *Source) build() (*Clients, error) {
	base, err := clientcmd.RESTConfigFromKubeConfig([]byte(s.cfg.Kubeconfig))
	if err != nil {
		return nil, fmt.Errorf("credential: %w", err)
	}
	base.UserAgent = s.cfg.UserAgent
	base.ContentType = s.cfg.ContentType
	if base.ContentType == runtime.ContentTypeProtobuf {
		base.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	base.QPS = -1
	s.count++
	made := &Clients{Generation: s.count, Host: base.Host}
	for _, client := range []*corev1.CoreV1Interface{&made.Pods, &made.Events} {
		if *client, err = separate(made, base, Timeout, corev1.NewForConfigAndClient); err != nil {
			return nil, err
		}
	}
	limit := HeartbeatTimeout
	if s.cfg.Lease > 0 {
		limit = min(limit, s.cfg.Lease)
	}
	for _, client := range []*kubernetes.Interface{&made.Heartbeat, &made.Lease} {
		if *client, err = separate(made, base, limit, kubernetes.NewForConfigAndClient); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// separate makes a client whose connections are its own: client-go shares them
// between clients with the same dialer.
func separate[T any](c *Clients, base *rest.Config, timeout time.Duration, newClient func(*rest.Config, *http.Client) (T, error)) (client T, err error) {
	cfg := rest.CopyConfig(base)
	cfg.Timeout = timeout
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: timeout, KeepAlive: 30 * time.Second}).DialContext)
	cfg.Dial = dialer.DialContext
	cfg.Wrap(func(transport http.RoundTripper) http.RoundTripper {
		return &reconnecting{RoundTripper: transport, close: dialer.CloseAll}
	})
	connections, err := rest.HTTPClientFor(cfg)
	if err == nil {
		c.dialers = append(c.dialers, dialer)
		client, err = newClient(cfg, connections)
	}
	if err != nil {
		return client, fmt.Errorf("API client: %w", err)
	}
	return client, nil
}

// PatchStatus implements report.API.
func (s *Source) PatchStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error) {
	c, err := s.Clients()
	if err != nil {
		return nil, err
	}
	return c.Pods.Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
}

// PatchClaimStatus implements claims.API.
func (s *Source) PatchClaimStatus(ctx context.Context, namespace, name string, body []byte) error {
	c, err := s.Clients()
	if err != nil {
		return err
	}
	_, err = c.Pods.PersistentVolumeClaims(namespace).Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// CreatePod implements report.API.
func (s *Source) CreatePod(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	c, err := s.Clients()
	if err != nil {
		return nil, err
	}
	return c.Pods.Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
}

// DeletePod implements report.API.
func (s *Source) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	c, err := s.Clients()
	if err != nil {
		return err
	}
	grace := int64(0)
	return c.Pods.Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{
		GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &uid},
	})
}

// CreateEvent implements events.API.
func (s *Source) CreateEvent(ctx context.Context, event *v1.Event) (*v1.Event, error) {
	c, err := s.Clients()
	if err != nil {
		return nil, err
	}
	return c.Events.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
}

// PatchEvent implements events.API.
func (s *Source) PatchEvent(ctx context.Context, namespace, name string, body []byte) (*v1.Event, error) {
	c, err := s.Clients()
	if err != nil {
		return nil, err
	}
	return c.Events.Events(namespace).Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
}

// CreateNode implements nodesync.API.
func (s *Source) CreateNode(ctx context.Context, node *v1.Node) (*v1.Node, error) {
	c, err := s.Clients()
	if err != nil {
		return nil, err
	}
	return c.Heartbeat.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
}

// GetNode implements nodesync.API.
func (s *Source) GetNode(ctx context.Context, name string) (*v1.Node, error) {
	c, err := s.Clients()
	if err != nil {
		return nil, err
	}
	return c.Heartbeat.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

// PatchNodeStatus implements nodesync.API.
func (s *Source) PatchNodeStatus(ctx context.Context, name string, body []byte) (*v1.Node, error) {
	c, err := s.Clients()
	if err != nil {
		return nil, err
	}
	return c.Heartbeat.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
}

// GetCSINode implements csinode.API.
func (s *Source) GetCSINode(ctx context.Context, name string) (*storagev1.CSINode, error) {
	c, err := s.Clients()
	if err != nil {
		return nil, err
	}
	return c.Heartbeat.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
}

// CreateCSINode implements csinode.API.
func (s *Source) CreateCSINode(ctx context.Context, node *storagev1.CSINode) (*storagev1.CSINode, error) {
	c, err := s.Clients()
	if err != nil {
		return nil, err
	}
	return c.Heartbeat.StorageV1().CSINodes().Create(ctx, node, metav1.CreateOptions{})
}

// UpdateCSINode implements csinode.API.
func (s *Source) UpdateCSINode(ctx context.Context, node *storagev1.CSINode) (*storagev1.CSINode, error) {
	c, err := s.Clients()
	if err != nil {
		return nil, err
	}
	return c.Heartbeat.StorageV1().CSINodes().Update(ctx, node, metav1.UpdateOptions{})
}

// DeleteCSINode implements csinode.API.
func (s *Source) DeleteCSINode(ctx context.Context, name string, uid types.UID) error {
	c, err := s.Clients()
	if err != nil {
		return err
	}
	return c.Heartbeat.StorageV1().CSINodes().Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

// ResourceSliceDrivers implements resourceslices.API.
func (s *Source) ResourceSliceDrivers(ctx context.Context, node string) ([]string, error) {
	c, err := s.Clients()
	if err != nil {
		return nil, err
	}
	all, err := c.Heartbeat.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: ofNode(node).String()})
	if err != nil {
		return nil, err
	}
	var drivers []string
	for i := range all.Items {
		drivers = append(drivers, all.Items[i].Spec.Driver)
	}
	slices.Sort(drivers)
	return slices.Compact(drivers), nil
}

// DeleteResourceSlices implements resourceslices.API.
func (s *Source) DeleteResourceSlices(ctx context.Context, node, driver string) error {
	c, err := s.Clients()
	if err != nil {
		return err
	}
	which := ofNode(node)
	which[resourcev1.ResourceSliceSelectorDriver] = driver
	return c.Heartbeat.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: which.String()})
}

// ofNode selects the slices of a node, which is all that its credential may see.
func ofNode(name string) fields.Set {
	return fields.Set{resourcev1.ResourceSliceSelectorNodeName: name}
}

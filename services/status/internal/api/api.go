// Package api is the way to the API server: clients from the kubeconfig file,
// which is read again whenever it changes, and the few calls status makes.
//
// It owns three clients that share no connection, so that a stuck one holds up
// nothing else: for pods, for events, and for heartbeats (Node and Lease). Rates
// are not limited here; those who send do that, where they can still choose what
// to send. An API server that is away is normal: every call says so in its error.
package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Timeouts of one request.
const (
	// Timeout of pods and events.
	Timeout = 30 * time.Second
	// HeartbeatTimeout of the Node and its Lease; the lease's duration if that is
	// shorter.
	HeartbeatTimeout = 10 * time.Second
)

// Config is where the credentials are.
type Config struct {
	// Kubeconfig is the path of the file.
	Kubeconfig string
	// ContentType of requests (KubeletConfiguration contentType).
	ContentType string
	// Lease is the duration of the lease.
	Lease time.Duration
	// UserAgent of all clients.
	UserAgent string
}

// Clients are made from one reading of the kubeconfig.
type Clients struct {
	// Generation grows with each reading.
	Generation int
	// Host is the API server's address.
	Host      string
	Pods      corev1.CoreV1Interface
	Events    corev1.CoreV1Interface
	Heartbeat kubernetes.Interface

	http []*http.Client
}

// Source makes clients. Safe for concurrent use.
type Source struct {
	mu      sync.Mutex
	cfg     Config
	stamp   stamp
	clients *Clients
	made    int
}

type stamp struct {
	path    string
	size    int64
	changed time.Time
	cfg     Config
}

// ErrStandalone says that there is no kubeconfig, and so no API server.
var ErrStandalone = errors.New("standalone: no kubeconfig is given")

// NewSource makes a source that has not read anything yet.
func NewSource(cfg Config) *Source { return &Source{cfg: cfg} }

// Configure changes how the next clients are made.
func (s *Source) Configure(cfg Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg = cfg
}

// Clients are those of the kubeconfig as it is now. A file that has become
// unreadable leaves the former clients in place.
func (s *Source) Clients() (*Clients, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.Kubeconfig == "" {
		return nil, ErrStandalone
	}
	info, err := os.Stat(s.cfg.Kubeconfig)
	if err != nil {
		return s.former(fmt.Errorf("kubeconfig: %w", err))
	}
	now := stamp{s.cfg.Kubeconfig, info.Size(), info.ModTime(), s.cfg}
	if s.clients != nil && now == s.stamp {
		return s.clients, nil
	}
	made, err := s.build()
	if err != nil {
		return s.former(err)
	}
	if s.clients != nil {
		for _, c := range s.clients.http {
			c.CloseIdleConnections()
		}
	}
	s.clients, s.stamp = made, now
	return made, nil
}

func (s *Source) former(err error) (*Clients, error) {
	if s.clients != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.clients, nil
	}
	return nil, err
}

func (s *Source) build() (*Clients, error) {
	base, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: s.cfg.Kubeconfig}, &clientcmd.ConfigOverrides{},
	).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", s.cfg.Kubeconfig, err)
	}
	base.UserAgent = s.cfg.UserAgent
	base.ContentType = s.cfg.ContentType
	if base.ContentType == runtime.ContentTypeProtobuf {
		base.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	base.QPS = -1
	s.made++
	made := &Clients{Generation: s.made, Host: base.Host}
	if made.Pods, err = made.core(base, Timeout); err != nil {
		return nil, err
	}
	if made.Events, err = made.core(base, Timeout); err != nil {
		return nil, err
	}
	limit := HeartbeatTimeout
	if s.cfg.Lease > 0 {
		limit = min(limit, s.cfg.Lease)
	}
	cfg, client, err := made.separate(base, limit)
	if err != nil {
		return nil, err
	}
	made.Heartbeat, err = kubernetes.NewForConfigAndClient(cfg, client)
	if err != nil {
		return nil, fmt.Errorf("API client: %w", err)
	}
	return made, nil
}

func (c *Clients) core(base *rest.Config, timeout time.Duration) (corev1.CoreV1Interface, error) {
	cfg, client, err := c.separate(base, timeout)
	if err != nil {
		return nil, err
	}
	core, err := corev1.NewForConfigAndClient(cfg, client)
	if err != nil {
		return nil, fmt.Errorf("API client: %w", err)
	}
	return core, nil
}

// separate makes a client whose connections are its own: client-go shares them
// between clients with the same dialer.
func (c *Clients) separate(base *rest.Config, timeout time.Duration) (*rest.Config, *http.Client, error) {
	cfg := rest.CopyConfig(base)
	cfg.Timeout = timeout
	cfg.Dial = (&net.Dialer{Timeout: timeout, KeepAlive: 30 * time.Second}).DialContext
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("API client: %w", err)
	}
	c.http = append(c.http, client)
	return cfg, client, nil
}

// PatchStatus implements report.API.
func (s *Source) PatchStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error) {
	c, err := s.Clients()
	if err != nil {
		return nil, err
	}
	return c.Pods.Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
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

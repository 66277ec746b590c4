// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesv1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/services/resource/internal/rootsocket"
)

// The kubelet's limits, of all calls together.
const (
	callsPerSecond = 100
	burst          = 10
)

// Facts are what answers are made of.
type Facts interface {
	// Pods that hold something, in the order of their UIDs.
	Pods() []Pod
	// Allocatable has an error while the node is not known.
	Allocatable() (Allocatable, error)
}

// Server answers at a socket. Make it with New.
type Server struct {
	path   string
	server *grpc.Server
}

// New makes a server for a socket, and registers its metrics.
func New(path string, facts Facts, metrics prometheus.Registerer) *Server {
	limit := rate.NewLimiter(callsPerSecond, burst)
	s := &Server{path: path, server: grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if !limit.Allow() {
				return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
			}
			return handle(ctx, req)
		}))}
	c := newCounters(metrics)
	podresourcesv1.RegisterPodResourcesListerServer(s.server, &v1Server{facts: facts, counters: c})
	podresourcesv1alpha1.RegisterPodResourcesListerServer(s.server, &v1alpha1Server{facts: facts, counters: c})
	return s
}

// Serve answers until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	listener, err := rootsocket.Listen(s.path)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, s.server.Stop)()
	if err := s.server.Serve(listener); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// counters have the kubelet's names.
type counters struct {
	all, lists, allocatables, gets     *prometheus.CounterVec
	badLists, badAllocatables, badGets *prometheus.CounterVec
}

func newCounters(r prometheus.Registerer) *counters {
	counter := func(name, help string) *prometheus.CounterVec {
		return metric.In(r).Counters(name, help, "server_api_version")
	}
	return &counters{
		all:             counter("kubelet_pod_resources_endpoint_requests_total", "Requests to the PodResources endpoint."),
		lists:           counter("kubelet_pod_resources_endpoint_requests_list", "List requests to the PodResources endpoint."),
		allocatables:    counter("kubelet_pod_resources_endpoint_requests_get_allocatable", "GetAllocatableResources requests to the PodResources endpoint."),
		gets:            counter("kubelet_pod_resources_endpoint_requests_get", "Get requests to the PodResources endpoint."),
		badLists:        counter("kubelet_pod_resources_endpoint_errors_list", "List requests to the PodResources endpoint that failed."),
		badAllocatables: counter("kubelet_pod_resources_endpoint_errors_get_allocatable", "GetAllocatableResources requests to the PodResources endpoint that failed."),
		badGets:         counter("kubelet_pod_resources_endpoint_errors_get", "Get requests to the PodResources endpoint that failed."),
	}
}

// begin counts a request.
func (c *counters) begin(of *prometheus.CounterVec, version string) {
	c.all.WithLabelValues(version).Inc()
	of.WithLabelValues(version).Inc()
}

type v1Server struct {
	podresourcesv1.UnsafePodResourcesListerServer
	facts    Facts
	counters *counters
}

// List implements PodResourcesLister.
func (s *v1Server) List(context.Context, *podresourcesv1.ListPodResourcesRequest) (*podresourcesv1.ListPodResourcesResponse, error) {
	s.counters.begin(s.counters.lists, "v1")
	return list(s.facts.Pods()), nil
}

// GetAllocatableResources implements PodResourcesLister.
func (s *v1Server) GetAllocatableResources(context.Context, *podresourcesv1.AllocatableResourcesRequest) (*podresourcesv1.AllocatableResourcesResponse, error) {
	s.counters.begin(s.counters.allocatables, "v1")
	a, err := s.facts.Allocatable()
	if err != nil {
		s.counters.badAllocatables.WithLabelValues("v1").Inc()
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return allocatable(a), nil
}

// Get implements PodResourcesLister. The error has the kubelet's words.
func (s *v1Server) Get(_ context.Context, req *podresourcesv1.GetPodResourcesRequest) (*podresourcesv1.GetPodResourcesResponse, error) {
	s.counters.begin(s.counters.gets, "v1")
	for _, p := range s.facts.Pods() {
		if p.Pod.Name == req.GetPodName() && p.Pod.Namespace == req.GetPodNamespace() {
			return &podresourcesv1.GetPodResourcesResponse{PodResources: p.resources()}, nil
		}
	}
	s.counters.badGets.WithLabelValues("v1").Inc()
	return nil, status.Errorf(codes.Unknown, "pod %s in namespace %s not found", req.GetPodName(), req.GetPodNamespace())
}

type v1alpha1Server struct {
	podresourcesv1alpha1.UnsafePodResourcesListerServer
	facts    Facts
	counters *counters
}

// List implements PodResourcesLister.
func (s *v1alpha1Server) List(context.Context, *podresourcesv1alpha1.ListPodResourcesRequest) (*podresourcesv1alpha1.ListPodResourcesResponse, error) {
	s.counters.all.WithLabelValues("v1alpha1").Inc()
	return listAlpha(s.facts.Pods()), nil
}

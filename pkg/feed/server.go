// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
)

// Source is a feed that can be served; Owner is one.
type Source interface {
	Name() string
	Changes(req *feedv1.ChangesRequest) *feedv1.ChangesResponse
	State() (revision Revision, complete bool, items int)
}

// Server serves the feeds of one service.
type Server struct {
	feedv1.UnimplementedFeedServiceServer
	mu    sync.RWMutex
	feeds map[string]Source
}

// NewServer makes a server without feeds.
func NewServer() *Server { return &Server{feeds: map[string]Source{}} }

// Add serves one more feed.
func (s *Server) Add(f Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds[f.Name()] = f
}

// Sources lists the feeds by name.
func (s *Server) Sources() []Source {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.feeds), func(a, b Source) int { return cmp.Compare(a.Name(), b.Name()) })
}

// Register puts the server on a socket.
func (s *Server) Register(to grpc.ServiceRegistrar) { feedv1.RegisterFeedServiceServer(to, s) }

// Changes implements FeedService; the caller must be a reader of the feed.
func (s *Server) Changes(ctx context.Context, req *feedv1.ChangesRequest) (*feedv1.ChangesResponse, error) {
	s.mu.RLock()
	f, ok := s.feeds[req.GetFeed()]
	s.mu.RUnlock()
	if !ok {
		return nil, rpc.NotFound.Errorf("feed %q is not served here", req.GetFeed())
	}
	peer := rpc.PeerFrom(ctx)
	if !peer.Any(func(p house.Service) bool { return house.MayRead(p, req.GetFeed()) }) {
		return nil, rpc.Denied.Errorf("feed %s is not for this caller", req.GetFeed())
	}
	return f.Changes(req), nil
}

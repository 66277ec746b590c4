package tools

import (
	"context"
	"log/slog"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	supervisorv1 "github.com/sextant-node/sextant/proto/sextant/supervisor/v1"
)

// Config of a server.
type Config struct {
	// Socket to listen on.
	Socket     string
	Identities house.Identities
	// Root is the kubelet's root directory: nothing is mounted anywhere else.
	Root string
	// Path is where tools are looked for, folders separated by colons; empty for
	// where a distribution has them.
	Path string
	Log  *slog.Logger
}

// Server serves the orders.
type Server struct {
	supervisorv1.UnimplementedToolsServiceServer
	Config
	runner runner
}

// New makes a server; it starts nothing.
func New(cfg Config) *Server {
	return &Server{Config: cfg, runner: runner{path: cfg.Path, log: cfg.Log}}
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	server, err := rpc.NewServer(rpc.ServerConfig{Socket: s.Socket, Identities: s.Identities, Log: s.Log})
	if err != nil {
		return err
	}
	supervisorv1.RegisterToolsServiceServer(server, s)
	return server.Run(ctx)
}

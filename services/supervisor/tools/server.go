// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"context"
	"log/slog"
	"time"

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
	// Path for tools, folders separated by colons; empty for the folders of a
	// distribution.
	Path string
	// Host is the machine's root folder; empty for /. Patience is how long a device is
	// waited for; zero for half a minute.
	Host     string
	Patience time.Duration
	Log      *slog.Logger
}

// Server serves ToolsService.
type Server struct {
	supervisorv1.UnimplementedToolsServiceServer
	Config
	runner *runner
}

// New makes a server; it starts nothing.
func New(cfg Config) *Server {
	return &Server{Config: cfg, runner: newRunner(cfg.Path, cfg.Patience, cfg.Log)}
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

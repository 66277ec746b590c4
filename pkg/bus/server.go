// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/quiet"
)

// ServerConfig is the embedded NATS server of a node.
type ServerConfig struct {
	// Keys is the folder EnsureKeys filled.
	Keys string
	// AddressFile is where the URL is written, and read for the port of the
	// server's earlier life.
	AddressFile string
	// Host to listen on; loopback when empty.
	Host string
	// Port; 0 takes the former one, or any.
	Port int
	Log  *slog.Logger
}

// Server is the embedded NATS server: no JetStream, no clustering, no HTTP.
type Server struct{ cfg ServerConfig }

// NewServer makes a server; Run starts it.
func NewServer(cfg ServerConfig) *Server {
	cfg.Host = cmp.Or(cfg.Host, "127.0.0.1")
	return &Server{cfg: cfg}
}

// Run serves until ctx ends. ready is called when clients can connect.
func (s *Server) Run(ctx context.Context, ready func()) error {
	public, err := readPublic(s.cfg.Keys)
	if err != nil {
		return fmt.Errorf("bus keys: %w", err)
	}
	port := s.cfg.Port
	if port == 0 {
		port = s.formerPort()
	}
	if port == 0 || !free(s.cfg.Host, port) {
		port = server.RANDOM_PORT
	}
	nats, err := server.NewServer(&server.Options{
		ServerName: "sextant", Host: s.cfg.Host, Port: port, Nkeys: users(public),
		NoSigs: true, NoSystemAccount: true, MaxPayload: 1 << 20, MaxControlLine: 4096,
		AuthTimeout: 5, PingInterval: time.Minute, WriteDeadline: 2 * time.Second,
	})
	if err != nil {
		return fmt.Errorf("bus: %w", err)
	}
	nats.SetLoggerV2(natsLog{quiet.NewLog(s.cfg.Log)}, false, false, false)
	nats.Start()
	defer func() { nats.Shutdown(); nats.WaitForShutdown() }()
	if !nats.ReadyForConnections(10 * time.Second) {
		return errors.New("bus: not ready for connections in 10 s")
	}
	err = os.MkdirAll(filepath.Dir(s.cfg.AddressFile), 0o755) // the service's socket, which makes the folder too, may come later
	if err == nil {
		err = file.Replace(s.cfg.AddressFile, []byte(nats.ClientURL()+"\n"), 0o644)
	}
	if err != nil {
		return fmt.Errorf("bus address: %w", err)
	}
	s.cfg.Log.Info("bus listens", "url", nats.ClientURL())
	ready()
	<-ctx.Done()
	return nil
}

func users(public map[house.Service]string) []*server.NkeyUser {
	var all []*server.NkeyUser
	for s, key := range public {
		publish := &server.SubjectPermission{Allow: Publishes(s)}
		if len(publish.Allow) == 0 {
			publish.Deny = []string{">"}
		}
		all = append(all, &server.NkeyUser{Nkey: key, Permissions: &server.Permissions{
			Publish:   publish,
			Subscribe: &server.SubjectPermission{Allow: Subscribes(s)},
		}})
	}
	return all
}

func (s *Server) formerPort() int {
	data, err := os.ReadFile(s.cfg.AddressFile)
	if err != nil {
		return 0
	}
	text := strings.TrimSpace(string(data))
	port, err := strconv.Atoi(text[strings.LastIndexByte(text, ':')+1:])
	if err != nil {
		return 0
	}
	return port
}

func free(host string, port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// longText bounds a line of the server's log, in bytes.
const longText = 512

// natsLog puts the server's log into ours. Any local user may connect, and fail, as
// often as they like.
type natsLog struct{ log *quiet.Log }

func (l natsLog) Noticef(format string, v ...any) { l.put(slog.LevelDebug, format, v) }
func (l natsLog) Warnf(format string, v ...any)   { l.put(slog.LevelWarn, format, v) }
func (l natsLog) Fatalf(format string, v ...any)  { l.put(slog.LevelError, format, v) }
func (l natsLog) Errorf(format string, v ...any)  { l.put(slog.LevelError, format, v) }
func (l natsLog) Debugf(format string, v ...any)  { l.put(slog.LevelDebug, format, v) }
func (l natsLog) Tracef(format string, v ...any)  { l.put(slog.LevelDebug, format, v) }

func (l natsLog) put(level slog.Level, format string, v []any) {
	l.log.Say(level, format, "nats", "text", quiet.Cut(fmt.Sprintf(format, v...), longText))
}

// SPDX-License-Identifier: Apache-2.0

package rpc_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
)

// greeter is the service that the example serves.
type greeter struct {
	nodev1.UnimplementedNodeServiceServer
}

func (greeter) Hello(ctx context.Context, r *nodev1.HelloRequest) (*nodev1.HelloResponse, error) {
	if r.GetService() == "" {
		return nil, rpc.Invalid.Errorf("service: required")
	}
	return &nodev1.HelloResponse{Service: fmt.Sprint("hello ", r.GetService(), ", pleg: ", rpc.PeerFrom(ctx).Is(house.Pleg))}, nil
}

// A service on a socket that only pleg's uid may use, and a client of it.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "grpc.sock")

	server, err := rpc.NewServer(rpc.ServerConfig{
		Socket: socket, Log: quiet, Identities: house.Identities{house.Pleg: uint32(os.Geteuid())},
	})
	check(err)
	nodev1.RegisterNodeServiceServer(server, greeter{})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- server.Run(ctx) }()

	conn, err := rpc.Dial(rpc.ClientConfig{Socket: socket, Patient: true}) // waits for the server
	check(err)
	client := nodev1.NewNodeServiceClient(conn)
	answer, err := client.Hello(ctx, &nodev1.HelloRequest{Service: "example"})
	fmt.Println(answer.GetService(), err)
	_, err = client.Hello(ctx, &nodev1.HelloRequest{})
	fmt.Println(err, "/ invalid:", rpc.Is(err, rpc.Invalid)) // the kind crosses the socket

	check(conn.Close())
	stop()
	fmt.Println("server:", <-ended)
	// Output:
	// hello example, pleg: true <nil>
	// service: required / invalid: true
	// server: <nil>
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

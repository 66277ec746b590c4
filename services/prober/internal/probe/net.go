// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"context"
	"net"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

// tcp succeeds when a connection can be opened.
func (p *Prober) tcp(ctx context.Context, action *v1.TCPSocketAction, s Subject) Outcome {
	port, err := portOf(action.Port, s.Container)
	if err != nil {
		return errored(err)
	}
	host := cmp.Or(action.Host, s.PodIP)
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return failed("%v", err)
	}
	_ = conn.Close() // that it opened is all
	return Outcome{Result: schedule.Success}
}

// grpc asks the gRPC health service (grpc.health.v1) of the container. Its timeout is for
// the connection as well: like a kubelet's, the probe waits for a server that starts.
func (p *Prober) grpc(ctx context.Context, action *v1.GRPCAction, s Subject) Outcome {
	address := net.JoinHostPort(s.PodIP, strconv.Itoa(int(action.Port)))
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent(p.UserAgent), grpc.WithNoProxy(),
		grpc.WithMaxHeaderListSize(maxHeader), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxHeader)),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		return failed("%v", err)
	}
	defer conn.Close() //nolint:errcheck // one call only
	resp, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: ptr.Deref(action.Service, "")}, grpc.WaitForReady(true))
	if err != nil {
		switch st := status.Convert(err); st.Code() {
		case codes.Unimplemented:
			return failed("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", st.Message())
		case codes.DeadlineExceeded:
			if conn.GetState() != connectivity.Ready {
				return failed("timeout: failed to connect service %q: %s", address, st.Message())
			}
			return failed("timeout: health rpc did not complete in time")
		case codes.Unavailable:
			return failed("timeout: failed to connect service %q: %s", address, st.Message())
		default:
			return failed("error: health rpc probe failed: %v", err)
		}
	}
	if resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return failed("service unhealthy (responded with %q)", resp.GetStatus())
	}
	return Outcome{Result: schedule.Success, Message: "service healthy"}
}

// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/sextant-node/sextant/pkg/house"
)

// callLevel keeps the log quiet: only what is a defect here is loud.
func callLevel(code codes.Code) logging.Level {
	switch code {
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return logging.LevelError
	case codes.PermissionDenied, codes.Unauthenticated:
		return logging.LevelWarn
	}
	return logging.LevelDebug
}

func authorize(ctx context.Context, method string) error {
	p := PeerFrom(ctx)
	if p.Any(func(s house.Service) bool { return house.MayCall(s, method) }) {
		return nil
	}
	if p == nil {
		return Denied.Errorf("%s: caller unknown", method)
	}
	return Denied.Errorf("%s is not for uid %d (%v)", method, p.UID, p.Services)
}

func authorizeUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := authorize(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func authorizeStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := authorize(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	return next(srv, stream)
}

func errorUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	resp, err := next(ctx, req)
	return resp, toWire(err)
}

func errorStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	return toWire(next(srv, stream))
}

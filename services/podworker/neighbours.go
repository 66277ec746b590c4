package podworker

import (
	"context"

	"google.golang.org/grpc"

	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
)

// volumes is what workers ask of volume; its gRPC client is one.
type volumes interface {
	Declare(ctx context.Context, req *volumev1.DeclareRequest, opts ...grpc.CallOption) (*volumev1.DeclareResponse, error)
	Withdraw(ctx context.Context, req *volumev1.WithdrawRequest, opts ...grpc.CallOption) (*volumev1.WithdrawResponse, error)
}

// resources is what workers ask of resource; its gRPC client is one.
type resources interface {
	Admit(ctx context.Context, req *resourcev1.AdmitRequest, opts ...grpc.CallOption) (*resourcev1.AdmitResponse, error)
	Resize(ctx context.Context, req *resourcev1.ResizeRequest, opts ...grpc.CallOption) (*resourcev1.ResizeResponse, error)
	Settle(ctx context.Context, req *resourcev1.SettleRequest, opts ...grpc.CallOption) (*resourcev1.SettleResponse, error)
	Release(ctx context.Context, req *resourcev1.ReleaseRequest, opts ...grpc.CallOption) (*resourcev1.ReleaseResponse, error)
}

// observer is what workers ask of pleg; its gRPC client is one.
type observer interface {
	Refresh(ctx context.Context, req *plegv1.RefreshRequest, opts ...grpc.CallOption) (*plegv1.RefreshResponse, error)
}

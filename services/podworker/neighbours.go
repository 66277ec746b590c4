// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/feed"
	plegv1 "github.com/sextant-node/sextant/proto/sextant/pleg/v1"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	volumev1 "github.com/sextant-node/sextant/proto/sextant/volume/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/observe"
)

// The calls below end by themselves: a connection of rpc.Dial bounds each.

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

// refreshed has pleg read a pod now, and records follow to the revision that has it. all is
// everything there may be of the pod; nil has the runtime list it.
func refreshed(ctx context.Context, o observer, records *feed.Replica[*observe.Record], uid types.UID, all *plegv1.Inventory) (*observe.Record, feed.Revision, error) {
	resp, err := o.Refresh(ctx, &plegv1.RefreshRequest{Uid: string(uid), Inventory: all})
	if err != nil {
		return nil, feed.Revision{}, err
	}
	revision := feed.RevisionFrom(resp.GetRevision())
	records.LookFor(revision)
	if resp.GetRecord() == nil {
		return nil, revision, nil
	}
	record, err := observe.Decode("", resp.GetRecord())
	return record, revision, err
}

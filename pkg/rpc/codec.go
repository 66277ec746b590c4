// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that newCodec extends
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/wire"
)

// codec is gRPC's codec for protobuf, except that a message is not refused because
// of text that is not UTF-8 (pkg/wire).
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.CodecV2.Marshal(v)
	if err == nil {
		return data, nil
	}
	m, ok := v.(proto.Message)
	if !ok {
		return nil, err
	}
	clean, changed := wire.Clean(m)
	if !changed {
		return nil, err
	}
	return c.CodecV2.Marshal(clean)
}

// SPDX-License-Identifier: Apache-2.0

package broker

import "google.golang.org/grpc/mem"

// frame is one message as bytes, unparsed.
type frame struct{ data []byte }

// rawCodec passes frames through. It is called "proto" because that is what the
// bytes are and what the runtime expects.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*frame).data)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*frame).data = data.Materialize()
	return nil
}

func (rawCodec) Name() string { return "proto" }

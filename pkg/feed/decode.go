// SPDX-License-Identifier: Apache-2.0

package feed

import "google.golang.org/protobuf/proto"

// Decoder reads an item's bytes as the feed's message, of which keep makes what the
// reader wants of it; the message is keep's own.
func Decoder[M proto.Message, T any](keep func(key string, message M) (T, error)) func(key string, value []byte) (T, error) {
	return func(key string, value []byte) (T, error) {
		var none M
		message := none.ProtoReflect().New().Interface().(M)
		if err := proto.Unmarshal(value, message); err != nil {
			var nothing T
			return nothing, err
		}
		return keep(key, message)
	}
}

// Whole keeps the message as it is.
func Whole[M proto.Message](_ string, message M) (M, error) { return message, nil }

// Keys keeps nothing but which items there are.
func Keys(string, []byte) (struct{}, error) { return struct{}{}, nil }

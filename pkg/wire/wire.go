// SPDX-License-Identifier: Apache-2.0

// Package wire turns protobuf messages into bytes, for feeds, state files, the
// bus and calls between services.
//
// A string of a proto3 message must be UTF-8: proto.Marshal refuses a message
// with another one. Such text comes from containers, runtimes and peers (the end
// of a log that is cut within a character, the body of a probe). A message is
// worth more than the bytes that are not text, so Marshal replaces them with
// U+FFFD and tries again. Producers still clean what they cut; Cleaned counts
// what they missed.
package wire

import (
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var cleaned atomic.Uint64

// Cleaned is how many messages of this process had text that was not UTF-8.
func Cleaned() uint64 { return cleaned.Load() }

var deterministic = proto.MarshalOptions{Deterministic: true}

// Marshal is the wire form of a message; equal messages have equal bytes. The
// message is not changed: what is not UTF-8 is replaced in a copy.
func Marshal(m proto.Message) ([]byte, error) {
	data, err := deterministic.Marshal(m)
	if err == nil {
		return data, nil
	}
	copied, changed := Clean(m)
	if !changed {
		return nil, err
	}
	return deterministic.Marshal(copied)
}

// Text is s with what is not UTF-8 replaced.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Clean is a copy of m in which every string is UTF-8; changed reports whether it
// differs from m, and is counted.
func Clean(m proto.Message) (copied proto.Message, changed bool) {
	copied = proto.Clone(m)
	if changed = cleanMessage(copied.ProtoReflect()); changed {
		cleaned.Add(1)
	}
	return copied, changed
}

func cleanMessage(m protoreflect.Message) (changed bool) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			changed = cleanMap(f, v.Map()) || changed
		case f.IsList():
			changed = cleanList(f, v.List()) || changed
		default:
			next, differs := cleanValue(f, v)
			if differs && next.IsValid() {
				m.Set(f, next)
			}
			changed = differs || changed
		}
		return true
	})
	return changed
}

func cleanList(f protoreflect.FieldDescriptor, list protoreflect.List) (changed bool) {
	for i := range list.Len() {
		next, differs := cleanValue(f, list.Get(i))
		if differs && next.IsValid() {
			list.Set(i, next)
		}
		changed = differs || changed
	}
	return changed
}

// cleanMap may lose all but one of the entries whose keys are equal once clean.
func cleanMap(f protoreflect.FieldDescriptor, all protoreflect.Map) (changed bool) {
	type name struct{ was, is protoreflect.MapKey }
	var renamed []name
	all.Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
		next, differs := cleanValue(f.MapValue(), v)
		if differs && next.IsValid() {
			all.Set(key, next)
		}
		text, bad := cleanValue(f.MapKey(), key.Value())
		if bad {
			renamed = append(renamed, name{key, text.MapKey()})
		}
		changed = bad || differs || changed
		return true
	})
	for _, n := range renamed {
		v := all.Get(n.was)
		all.Clear(n.was)
		all.Set(n.is, v)
	}
	return changed
}

// cleanValue is the value to be put in the place of a string that is not UTF-8;
// a message is changed in its place, and the value is not valid then.
func cleanValue(f protoreflect.FieldDescriptor, v protoreflect.Value) (next protoreflect.Value, changed bool) {
	switch f.Kind() {
	case protoreflect.StringKind:
		text := Text(v.String())
		return protoreflect.ValueOfString(text), text != v.String()
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return protoreflect.Value{}, cleanMessage(v.Message())
	}
	return protoreflect.Value{}, false
}

// Time is a moment on the wire; nil for the zero time.
func Time(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// TimeOf is a moment of the wire; the zero time for nil.
func TimeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

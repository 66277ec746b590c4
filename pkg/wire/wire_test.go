// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/wire"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
)

// hostile are texts that are not UTF-8: Latin-1, a character cut off at either
// end, a surrogate, and a byte that never occurs.
var hostile = []string{"caf\xe9", "\xe6\x97", "\x97\xa5 end", "\xed\xa0\x80", "\xff"}

// spoil fills every string below m, to some depth, with hostile text.
func spoil(m protoreflect.Message, depth int) {
	text := func() protoreflect.Value { return protoreflect.ValueOfString(hostile[rand.IntN(len(hostile))]) }
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		message := f.Kind() == protoreflect.MessageKind
		switch {
		case message && depth == 0:
		case f.IsMap():
			all := m.Mutable(f).Map()
			if f.MapKey().Kind() != protoreflect.StringKind {
				break
			}
			switch f.MapValue().Kind() {
			case protoreflect.MessageKind:
				if depth > 0 {
					spoil(all.Mutable(text().MapKey()).Message(), depth-1)
				}
			case protoreflect.StringKind:
				all.Set(text().MapKey(), text())
			}
		case f.IsList() && message:
			spoil(m.Mutable(f).List().AppendMutable().Message(), depth-1)
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			m.Mutable(f).List().Append(text())
			m.Mutable(f).List().Append(protoreflect.ValueOfString("whole"))
		case message:
			spoil(m.Mutable(f).Message(), depth-1)
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, text())
		}
	}
}

// TestEveryFeedTakesAnyText: no message of any feed is refused because of its text.
func TestEveryFeedTakesAnyText(t *testing.T) {
	messages := []proto.Message{&structpb.Struct{}, &configv1.CertifyPodRequest{}, &feedv1.ChangesResponse{}}
	for _, f := range house.Feeds() {
		messages = append(messages, f.Message())
	}
	spoiled := 0
	for _, m := range messages {
		name := string(m.ProtoReflect().Descriptor().FullName())
		spoil(m.ProtoReflect(), 4)
		before := proto.Clone(m)
		want := uint64(0)
		if _, err := proto.Marshal(m); err != nil {
			want = 1
			spoiled++
		}
		count := wire.Cleaned()
		data, err := wire.Marshal(m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := wire.Cleaned() - count; got != want {
			t.Errorf("%s: counted %d times, want %d", name, got, want)
		}
		if !proto.Equal(before, m) {
			t.Errorf("%s: the message itself was changed", name)
		}
		back := m.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(data, back); err != nil {
			t.Errorf("%s: read back: %v", name, err)
		}
	}
	if spoiled < len(messages)-2 { // two feeds have no text of their own
		t.Errorf("%d of %d messages had something to clean", spoiled, len(messages))
	}
}

func read(t *testing.T, data []byte, like proto.Message) proto.Message {
	t.Helper()
	m := like.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(data, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestTextThatIsWholeStays: what is UTF-8 is sent as it is, and is not counted.
func TestTextThatIsWholeStays(t *testing.T) {
	m := &configv1.Source{Name: "file", Error: "日本 café", Problems: []*configv1.Problem{{Message: "\x00 odd, but text"}}}
	want, err := (proto.MarshalOptions{Deterministic: true}).Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	count := wire.Cleaned()
	got, err := wire.Marshal(m)
	if err != nil || !bytes.Equal(got, want) || wire.Cleaned() != count {
		t.Errorf("%q (%v), want %q; %d cleaned", got, err, want, wire.Cleaned()-count)
	}
}

// TestMapKeysStayApart: a map keeps the entries that are whole, and one of those
// that cannot be told apart once clean.
func TestMapKeysStayApart(t *testing.T) {
	m := &configv1.CertifyPodRequest{Annotations: map[string]string{"a": "1", "b\xff": "2", "b\xfe": "3", "c": "\xff"}}
	data, err := wire.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got := read(t, data, m).(*configv1.CertifyPodRequest).GetAnnotations()
	if len(got) != 3 || got["a"] != "1" || got["c"] != "\uFFFD" || got["b\uFFFD"] != "2" && got["b\uFFFD"] != "3" {
		t.Errorf("%q", got)
	}
	for key, value := range got {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			t.Errorf("%q: %q is not UTF-8", key, value)
		}
	}
}

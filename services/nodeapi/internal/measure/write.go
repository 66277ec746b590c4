// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"context"
	"iter"
	"net/http"
	"runtime"
	"sync"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// encoded is a family in the format of an answer, or none that can be written.
type encoded struct {
	text *bytes.Buffer
	err  error
}

// buffers have the size of a large family after the first few.
var buffers = sync.Pool{New: func() any { return &bytes.Buffer{} }}

// write answers with families in the format that the caller prefers. A full node has 30 MB:
// while one family is made others are encoded, and one is compressed and sent.
func write(w http.ResponseWriter, r *http.Request, families iter.Seq[*dto.MetricFamily]) {
	format := expfmt.Negotiate(r.Header)
	w.Header().Set("Content-Type", string(format))
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	for turn := range encodings(ctx, families, format) {
		part := <-turn
		if part.err != nil {
			return // nothing after it would be read
		}
		_, err := w.Write(part.text.Bytes())
		buffers.Put(part.text)
		if err != nil {
			return // the caller has left
		}
	}
}

// encodings are families in their order, as many at a time as there are processors, until
// ctx ends.
func encodings(ctx context.Context, families iter.Seq[*dto.MetricFamily], format expfmt.Format) <-chan chan encoded {
	turns := make(chan chan encoded, runtime.GOMAXPROCS(0))
	go func() {
		defer close(turns)
		for family := range families {
			turn := make(chan encoded, 1)
			select {
			case turns <- turn:
			case <-ctx.Done():
				return
			}
			go func() {
				text := buffers.Get().(*bytes.Buffer)
				text.Reset()
				turn <- encoded{text, expfmt.NewEncoder(text, format).Encode(family)}
			}()
		}
	}()
	return turns
}

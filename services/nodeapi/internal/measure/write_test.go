// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// many families, and how many of them were made.
func many(n int, made *int) iter.Seq[*dto.MetricFamily] {
	return func(yield func(*dto.MetricFamily) bool) {
		for i := range n {
			*made++
			f := &dto.MetricFamily{Name: new(fmt.Sprintf("family_%03d", i)), Type: dto.MetricType_GAUGE.Enum()}
			for range 1 + i%7*100 { // some take long
				f.Metric = append(f.Metric, &dto.Metric{Gauge: &dto.Gauge{Value: new(float64(i))}})
			}
			if !yield(f) {
				return
			}
		}
	}
}

// TestFamiliesKeepTheirOrder in every format, though several are encoded at a time.
func TestFamiliesKeepTheirOrder(t *testing.T) {
	for _, accept := range []string{"", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", accept)
		var want bytes.Buffer
		encoder, made := expfmt.NewEncoder(&want, expfmt.Negotiate(r.Header)), 0
		for f := range many(200, &made) {
			if err := encoder.Encode(f); err != nil {
				t.Fatal(err)
			}
		}
		w := httptest.NewRecorder()
		write(w, r, many(200, &made))
		if !bytes.Equal(w.Body.Bytes(), want.Bytes()) {
			t.Errorf("accepted %q: %d bytes differ from %d", accept, w.Body.Len(), want.Len())
		}
	}
}

// leaving is a caller that leaves after the first family.
type leaving struct{ *httptest.ResponseRecorder }

func (l leaving) Write(p []byte) (int, error) {
	if l.Body.Len() > 0 {
		return 0, errors.New("broken pipe")
	}
	return l.ResponseRecorder.Write(p)
}

// TestACallerThatLeaves: no more families are made for it, and nothing of the answer stays.
func TestACallerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails for a goroutine that stays
		made := 0
		write(leaving{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/metrics", nil), many(10000, &made))
		synctest.Wait()
		if made > 100 {
			t.Errorf("%d families were made", made)
		}
	})
}

// TestAFamilyThatCannotBeWritten ends the answer where it would be.
func TestAFamilyThatCannotBeWritten(t *testing.T) {
	w := httptest.NewRecorder()
	write(w, httptest.NewRequest(http.MethodGet, "/metrics", nil), func(yield func(*dto.MetricFamily) bool) {
		_ = yield(&dto.MetricFamily{Name: new("good"), Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: new(1.0)}}}}) &&
			yield(&dto.MetricFamily{Name: new("bad"), Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{}}})
	})
	if got, want := w.Body.String(), "# TYPE good gauge\ngood 1\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"context"
	"log/slog"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/eviction"
)

// layersTimeout bounds what the runtime may take to measure layers (the kubelet:
// runtimeRequestTimeout), and how long its last answer serves.
const layersTimeout = 2 * time.Minute

// layers asks the runtime what containers' writable layers take. It goes on beside passes,
// which do not wait for a slow one: what comes late serves the next.
type layers struct {
	runtime runtimeapi.RuntimeServiceClient
	log     *slog.Logger
	now     func() time.Time

	mu sync.Mutex
	// reading is closed when the reading that is under way has ended; nil for none.
	reading chan struct{}
	last    layerReading
}

// layerReading is an answer of the runtime.
type layerReading struct {
	asked, came time.Time
	containers  []layer
}

// layer is what a container takes; used is nil where that was not measured.
type layer struct {
	pod, id, name string
	used          *eviction.Files
	at            time.Time
}

// ask begins a reading unless one is under way; done is closed at its end.
func (l *layers) ask(ctx context.Context) (done <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reading == nil {
		l.reading = make(chan struct{})
		go l.read(ctx)
	}
	return l.reading
}

func (l *layers) read(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, layersTimeout)
	defer cancel()
	next := layerReading{asked: l.now()}
	switch resp, err := l.runtime.ListContainerStats(bounded, &runtimeapi.ListContainerStatsRequest{}); {
	case err == nil:
		next.came = l.now()
		for _, c := range resp.GetStats() {
			next.containers = append(next.containers, layerOf(c))
		}
	case ctx.Err() == nil:
		l.log.Warn("writable layers not measured", "error", err.Error())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = next
	close(l.reading)
	l.reading = nil
}

func layerOf(c *runtimeapi.ContainerStats) layer {
	a, w := c.GetAttributes(), c.GetWritableLayer()
	l := layer{pod: a.GetLabels()[pod.PodUIDLabel], id: a.GetId(), name: a.GetMetadata().GetName()}
	if w != nil {
		l.used = &eviction.Files{Bytes: int64(w.GetUsedBytes().GetValue()), Inodes: int64(w.GetInodesUsed().GetValue())}
		l.at = time.Unix(0, w.GetTimestamp())
	}
	return l
}

// newest is the last reading; false where it failed, or is too old.
func (l *layers) newest() (layerReading, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, !l.last.came.IsZero() && l.now().Sub(l.last.came) < layersTimeout
}

package nodeapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/services/nodeapi/internal/metrics"
)

// scrapeFormat is the cheapest to read; a service that speaks another answers
// in text.
var scrapeFormat = string(expfmt.NewFormat(expfmt.TypeProtoDelim))

// scrapeTimeout bounds what one service may hold an answer up.
const scrapeTimeout = 2 * time.Second

// Which families belong to which path.
func kubeletMetrics(name string) bool { return !strings.HasPrefix(name, "prober_") }
func probeMetrics(name string) bool {
	return strings.HasPrefix(name, "prober_") || name == "process_start_time_seconds"
}

// metrics answers with the families of these services, merged. A service that is
// away is missing from the answer, and sextant_service_up says so.
func (s *Service) metrics(belongs func(string) bool, all ...house.Service) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		scrapes := make([]metrics.Scrape, len(all))
		var wait sync.WaitGroup
		for i, name := range all {
			wait.Add(1)
			go func() {
				defer wait.Done()
				families, err := s.scrape(r.Context(), name)
				scrapes[i] = metrics.Scrape{Service: string(name), Families: families, Up: err == nil}
			}()
		}
		wait.Wait()
		format := expfmt.Negotiate(r.Header)
		w.Header().Set("Content-Type", string(format))
		encoder := expfmt.NewEncoder(w, format)
		for _, family := range s.totals.Merge(scrapes, string(house.NodeAPI)) {
			if !belongs(family.GetName()) {
				continue
			}
			if err := encoder.Encode(family); err != nil {
				return // the caller went away
			}
		}
		if closer, ok := encoder.(expfmt.Closer); ok {
			_ = closer.Close() // the same
		}
	}
}

func (s *Service) scrape(ctx context.Context, name house.Service) (map[string]*dto.MetricFamily, error) {
	if name == house.NodeAPI {
		families, err := s.kit.Gather()
		return metrics.ByName(families), err
	}
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://unix/metrics", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", scrapeFormat)
	client := &http.Client{Transport: s.debugTransport(name)}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", name, resp.Status)
	}
	return metrics.Parse(resp.Body, expfmt.ResponseFormat(resp.Header))
}

func (s *Service) debugTransport(name house.Service) *http.Transport {
	return &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.kit.Paths.DebugSocket(name))
	}}
}

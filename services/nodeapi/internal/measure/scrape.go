// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strconv"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/nodeapi/internal/metrics"
	"github.com/sextant-node/sextant/services/nodeapi/internal/reply"
)

// scrapeFormat is the cheapest to read. A service that does not have it answers in text.
var scrapeFormat = string(expfmt.NewFormat(expfmt.TypeProtoDelim))

// scrapeTimeout bounds how long an answer waits for one service: on a node that is busy one
// takes seconds, and a series that is missing is a gap for whoever reads it. Prometheus waits
// 10 s by default.
const scrapeTimeout = 5 * time.Second

// scrapes reads and merges the metrics of services.
type scrapes struct {
	kit    *service.Kit
	totals *metrics.Totals
	// booted is when the machine did, by the clock as it was when this process started.
	booted time.Time
}

// merge reads the metrics of services at once. Those of a service that is away are
// missing, and sextant_service_up says so.
func (s *scrapes) merge(ctx context.Context, all []house.Service) []*dto.MetricFamily {
	answers := make([]metrics.Scrape, len(all))
	var parts sync.WaitGroup
	for i, name := range all {
		parts.Go(func() {
			families, started, err := s.scrape(ctx, name)
			answers[i] = metrics.Scrape{Service: string(name), Families: families, Started: started, Up: err == nil}
		})
	}
	parts.Wait()
	return s.totals.Merge(answers, string(house.NodeAPI))
}

func (s *scrapes) scrape(ctx context.Context, name house.Service) (families map[string]*dto.MetricFamily, started time.Time, err error) {
	if name == house.NodeAPI {
		families, err := s.kit.Gather()
		return metrics.ByName(families), s.booted.Add(s.kit.AfterBoot()), err
	}
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://unix/metrics", nil)
	if err != nil {
		return nil, started, err
	}
	req.Header.Set("Accept", scrapeFormat)
	client := &http.Client{Transport: debugTransport(s.kit, name)}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return nil, started, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if resp.StatusCode != http.StatusOK {
		return nil, started, fmt.Errorf("%s: %s", name, resp.Status)
	}
	if after, err := strconv.ParseInt(resp.Header.Get(service.StartedHeader), 10, 64); err == nil { // a release before this does not tell
		started = s.booted.Add(time.Duration(after))
	}
	families, err = metrics.Parse(resp.Body, expfmt.ResponseFormat(resp.Header))
	return families, started, err
}

// debugTransport connects to the debug socket of a service.
func debugTransport(kit *service.Kit, name house.Service) *http.Transport {
	return &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", kit.Paths.DebugSocket(name))
	}}
}

// profiles serves /debug/pprof.
type profiles struct {
	conf func() *kubeletconfig.Config
	kit  *service.Kit
}

// of answers with this process's own profile, or with ?service=NAME with another one's.
func (p *profiles) of(own http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if conf := p.conf(); conf != nil && !ptr.Deref(conf.Kubelet.EnableProfilingHandler, true) {
			reply.Disabled("profiling endpoint is disabled.")(w, r)
			return
		}
		name := house.Service(r.URL.Query().Get("service"))
		if name == "" || name == house.NodeAPI {
			own(w, r)
			return
		}
		if !house.IsService(name) {
			http.Error(w, fmt.Sprintf("no service %q", name), http.StatusNotFound)
			return
		}
		transport := debugTransport(p.kit, name)
		defer transport.CloseIdleConnections()
		proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "unix"})
		proxy.Transport = transport
		proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf("%s does not answer: %v", name, err), http.StatusBadGateway)
		}
		proxy.ServeHTTP(w, r)
	}
}

// Contention switches the block and mutex profiles of this process on or off
// (enableContentionProfiling).
func Contention(k *kubeletv1beta1.KubeletConfiguration) {
	rate := 0
	if k.EnableContentionProfiling && ptr.Deref(k.EnableProfilingHandler, true) && ptr.Deref(k.EnableDebuggingHandlers, true) {
		rate = 1
	}
	runtime.SetBlockProfileRate(rate)
	runtime.SetMutexProfileFraction(rate)
}

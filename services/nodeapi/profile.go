package nodeapi

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/http/pprof"
	"net/url"
	"runtime"
	"strconv"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/kubeconf"
)

// profiling registers /debug/pprof/.
func (s *Service) profiling(mux *http.ServeMux) {
	for name, own := range map[string]http.HandlerFunc{
		"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
	} {
		mux.HandleFunc("GET /debug/pprof/"+name, s.profile(own))
	}
}

// profile answers /debug/pprof of this process, or with ?service=NAME of
// another one.
func (s *Service) profile(own http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if conf := s.current(); conf != nil && !is(conf.Kubelet.EnableProfilingHandler, true) {
			disabled(profilingOff)(w, r)
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
		transport := s.debugTransport(name)
		defer transport.CloseIdleConnections()
		proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "unix"})
		proxy.Transport = transport
		proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf("%s does not answer: %v", name, err), http.StatusBadGateway)
		}
		proxy.ServeHTTP(w, r)
	}
}

// debugVerbosity is the klog verbosity from which on nodeapi logs requests.
const debugVerbosity = 4

// verbosityLimit is more than any number is long.
const verbosityLimit = 64

// verbosity answers PUT /debug/flags/v: it sets how much this process logs, in
// the kubelet's terms.
func (s *Service) verbosity(w http.ResponseWriter, r *http.Request) {
	say := func(code int, text string) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		answer(w, code, text+"\n")
	}
	if conf := s.current(); conf != nil && !is(conf.Kubelet.EnableDebugFlagsHandler, true) {
		disabled(flagsOff)(w, r)
		return
	}
	if r.Method != http.MethodPut {
		say(http.StatusNotAcceptable, "unsupported http method")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, verbosityLimit))
	if err != nil {
		say(http.StatusBadRequest, "error reading request body: "+err.Error())
		return
	}
	v, err := strconv.ParseUint(string(body), 10, 32)
	if err != nil {
		say(http.StatusBadRequest, err.Error())
		return
	}
	if level := s.kit.Level; level != nil {
		level.Set(slog.LevelInfo)
		if v >= debugVerbosity {
			level.Set(slog.LevelDebug)
		}
	}
	s.kit.Log.Info("verbosity set", "v", v, "user", callerOf(r.Context()).Name)
	say(http.StatusOK, "successfully set klog.logging.verbosity to "+string(body))
}

// contention switches this process's block and mutex profiles on or off, as a
// configuration says (enableContentionProfiling).
func contention(conf *kubeconf.Config) {
	rate := 0
	if conf.Kubelet.EnableContentionProfiling && is(conf.Kubelet.EnableProfilingHandler, true) && is(conf.Kubelet.EnableDebuggingHandlers, true) {
		rate = 1
	}
	runtime.SetBlockProfileRate(rate)
	runtime.SetMutexProfileFraction(rate)
}

package nodeapi

import (
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
)

// healthzHandler is the local port: the ping check alone.
func (s *Service) healthzHandler() http.Handler {
	mux := http.NewServeMux()
	healthz.InstallHandler(mux)
	return mux
}

// readOnlyHandler is what needs no authorization where it is switched on.
func (s *Service) readOnlyHandler() http.Handler {
	mux := http.NewServeMux()
	s.always(mux)
	for _, path := range debugPaths {
		mux.HandleFunc(path, disabled(debugOff))
	}
	return s.requests.counted("readonly", webServices(mux))
}

// authenticatedHandler is port 10250.
func (s *Service) authenticatedHandler() http.Handler {
	mux := http.NewServeMux()
	s.always(mux)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.containerLogs)
	s.streaming(mux)
	mux.Handle("GET /logs/", http.StripPrefix("/logs/", http.HandlerFunc(s.systemLogs)))
	mux.HandleFunc("/configz", s.configz)
	mux.HandleFunc("/flagz", s.zpage)
	mux.HandleFunc("/statusz", s.zpage)
	mux.HandleFunc("/debug/flags/v", s.verbosity)
	s.profiling(mux)
	return s.requests.counted("readwrite", s.guard(mux, s.debugging(webServices(mux))))
}

// always is the part of the API that the read-only port has as well.
func (s *Service) always(mux *http.ServeMux) {
	s.health(mux)
	mux.HandleFunc("GET /pods", s.podList)
	mux.HandleFunc("GET /pods/{$}", s.podList)
	mux.HandleFunc("/metrics", s.metrics(kubeletMetrics, house.Services()...))
	s.stats(mux)
	mux.HandleFunc("/metrics/probes", s.metrics(probeMetrics, house.Prober, house.NodeAPI))
}

// guard lets a request through if its sender may make it. A path that leads
// nowhere is told so to everybody, as the kubelet does.
func (s *Service) guard(mux *http.ServeMux, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" && !isWebService(r.URL.Path) {
			http.NotFound(w, r)
			return
		}
		user, err := s.gate.Identify(r)
		if err != nil {
			s.kit.Log.Log(r.Context(), authLevel(err), "caller not identified", "path", r.URL.Path, "from", r.RemoteAddr, service.KeyError, err.Error())
			deny(w, r, http.StatusUnauthorized, auth.ErrUnauthenticated.Error())
			return
		}
		allowed, reason, err := s.gate.Authorize(r.Context(), user, r.Method, r.URL.Path)
		if err != nil {
			s.kit.Log.Warn("caller not authorized", "user", user.Name, "path", r.URL.Path, service.KeyError, err.Error())
			deny(w, r, http.StatusInternalServerError, reason)
			return
		}
		if !allowed {
			deny(w, r, http.StatusForbidden, reason)
			return
		}
		began := time.Now()
		next.ServeHTTP(w, r.WithContext(withCaller(r.Context(), user)))
		s.kit.Log.Debug("request", "user", user.Name, "method", r.Method, "path", r.URL.Path, "took", time.Since(began).String())
	})
}

// authLevel is how loudly a caller who was not identified is reported: strangers
// without credentials are everyday, credentials that fail are not.
func authLevel(err error) slog.Level {
	if err == auth.ErrUnauthenticated { //nolint:errorlint // wrapped means there is more to it
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// deny answers who is not let in, and does not wait for what they may still send.
func deny(w http.ResponseWriter, r *http.Request, code int, text string) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
	answer(w, code, text)
}

// answer is the kubelet's form of an error: the text as it is, and its type as
// sniffed.
func answer(w http.ResponseWriter, code int, text string) {
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // a caller that went away
}

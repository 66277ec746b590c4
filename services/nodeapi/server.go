package nodeapi

import (
	"errors"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"time"

	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
)

// healthzHandler is the local port: the ping check alone.
func (s *Service) healthzHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", text("ok"))
	mux.HandleFunc("GET /healthz/ping", text("ok"))
	return mux
}

// readOnlyHandler is what needs no authorization where it is switched on.
func (s *Service) readOnlyHandler() http.Handler {
	mux := http.NewServeMux()
	s.always(mux)
	return mux
}

// authenticatedHandler is port 10250.
func (s *Service) authenticatedHandler() http.Handler {
	mux := http.NewServeMux()
	s.always(mux)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.containerLogs)
	mux.HandleFunc("GET /containerLogs/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"message": "Missing namespace, pod or container."}`, http.StatusBadRequest)
	})
	mux.HandleFunc("GET /configz", s.configz)
	mux.HandleFunc("/debug/pprof/", s.profile(pprof.Index))
	mux.HandleFunc("/debug/pprof/cmdline", s.profile(pprof.Cmdline))
	mux.HandleFunc("/debug/pprof/profile", s.profile(pprof.Profile))
	mux.HandleFunc("/debug/pprof/symbol", s.profile(pprof.Symbol))
	mux.HandleFunc("/debug/pprof/trace", s.profile(pprof.Trace))
	return s.guard(s.debugging(mux))
}

// debugPaths are those that enableDebuggingHandlers switches off.
var debugPaths = []string{"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/", "/logs/"}

// debugging lets debug paths through if the configuration has them.
func (s *Service) debugging(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conf := s.current()
		if conf == nil || conf.Kubelet.EnableDebuggingHandlers == nil || *conf.Kubelet.EnableDebuggingHandlers {
			next.ServeHTTP(w, r)
			return
		}
		path := r.URL.Path
		switch {
		case slices.ContainsFunc(debugPaths, func(prefix string) bool { return strings.HasPrefix(path+"/", prefix) }):
			http.Error(w, "Debug endpoints are disabled.", http.StatusMethodNotAllowed)
		case path == "/configz":
			http.NotFound(w, r) // the kubelet has it only with the others
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// always is the part of the API that the read-only port has as well.
func (s *Service) always(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /healthz/{check}", s.healthzCheck)
	mux.HandleFunc("GET /pods", s.podList)
	mux.HandleFunc("GET /pods/{$}", s.podList)
	mux.HandleFunc("GET /metrics", s.metrics(kubeletMetrics))
	mux.HandleFunc("GET /metrics/probes", s.metrics(probeMetrics))
}

// guard lets a request through if its sender may make it.
func (s *Service) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := s.gate.Identify(r)
		if err != nil {
			if !errors.Is(err, auth.ErrUnauthenticated) {
				s.kit.Log.Warn("caller not identified", "path", r.URL.Path, "error", err.Error())
			}
			http.Error(w, auth.ErrUnauthenticated.Error(), http.StatusUnauthorized)
			return
		}
		allowed, reason, err := s.gate.Authorize(r.Context(), user, r.Method, r.URL.Path)
		if err != nil {
			s.kit.Log.Warn("caller not authorized", "user", user.Name, "path", r.URL.Path, "error", err.Error())
			http.Error(w, "Authorization error (user="+user.Name+", verb="+auth.Verb(r.Method)+", resource=nodes)", http.StatusInternalServerError)
			return
		}
		if !allowed {
			http.Error(w, reason, http.StatusForbidden)
			return
		}
		began := time.Now()
		next.ServeHTTP(w, r)
		s.kit.Log.Debug("request", "user", user.Name, "method", r.Method, "path", r.URL.Path, "took", time.Since(began).String())
	})
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write([]byte(body)) // a caller that went away
	}
}

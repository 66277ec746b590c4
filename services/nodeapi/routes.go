package nodeapi

import (
	"net/http"
	"slices"
	"strings"
)

// The kubelet's words for what is switched off.
const (
	debugOff     = "Debug endpoints are disabled."
	systemLogOff = "logs endpoint is disabled."
	profilingOff = "profiling endpoint is disabled."
	flagsOff     = "flags endpoint is disabled."
)

// debugPaths are those that enableDebuggingHandlers switches off with a word to
// the caller.
var debugPaths = []string{"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/"}

// debugOnly are those that exist only beside the debug paths.
var debugOnly = []string{"/configz", "/checkpoint/", "/flagz", "/statusz", "/debug/flags/"}

// webService are the paths whose methods and sub-paths the kubelet routes after
// it has authorized the caller; all others take any method, and lead nowhere for
// everybody if they are not exact.
var webService = []string{
	"/pods/", "/stats/", "/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/checkpoint/",
	"/debug/pprof/", "/logs/",
}

// below tells whether a path is one of the given ones or below it.
func below(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(path+"/", prefix) })
}

func isWebService(path string) bool { return below(path, webService) }

// disabled answers 405 with a reason.
func disabled(reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, reason, http.StatusMethodNotAllowed) }
}

// debugging lets debug paths through if the configuration has them.
func (s *Service) debugging(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conf := s.current()
		switch {
		case conf == nil || is(conf.Kubelet.EnableDebuggingHandlers, true):
			next.ServeHTTP(w, r)
		case below(r.URL.Path, debugPaths):
			disabled(debugOff)(w, r)
		case below(r.URL.Path, debugOnly):
			http.NotFound(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// is reads an optional field of the configuration.
func is(field *bool, otherwise bool) bool {
	if field == nil {
		return otherwise
	}
	return *field
}

// webServices gives paths of web services the kubelet's answers where mux has no
// handler: HEAD is a method like any other there, and the words are the
// router's (go-restful).
func webServices(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isWebService(r.URL.Path) {
			mux.ServeHTTP(w, r)
			return
		}
		asked := r
		if r.Method == http.MethodHead {
			asked = r.Clone(r.Context())
			asked.Method = "NONE"
		}
		handler, pattern := mux.Handler(asked)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		said := verdict{header: http.Header{}}
		handler.ServeHTTP(&said, asked)
		if said.code/100 == 3 { // to the same path, written cleanly
			mux.ServeHTTP(w, r)
			return
		}
		if said.code != http.StatusMethodNotAllowed {
			answer(w, http.StatusNotFound, "404: Page Not Found")
			return
		}
		methods := strings.Split(said.header.Get("Allow"), ", ")
		methods = slices.DeleteFunc(methods, func(m string) bool { return m == http.MethodHead })
		w.Header().Set("Allow", strings.Join(methods, ", "))
		answer(w, said.code, "405: Method Not Allowed")
	})
}

// verdict is what a mux would have answered, without the body.
type verdict struct {
	header http.Header
	code   int
}

func (v *verdict) Header() http.Header         { return v.header }
func (v *verdict) Write(p []byte) (int, error) { return len(p), nil }
func (v *verdict) WriteHeader(code int)        { v.code = code }

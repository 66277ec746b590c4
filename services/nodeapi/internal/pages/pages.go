// SPDX-License-Identifier: Apache-2.0

// Package pages serves the kubelet's pages about the node: pods, running pods, the
// configuration, flagz, statusz, and the verbosity of the log.
//
// It owns nothing; what it shows is in the view of pods and in the configuration.
package pages

import (
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
	"github.com/sextant-node/sextant/services/nodeapi/internal/reply"
	"github.com/sextant-node/sextant/services/nodeapi/internal/view"
)

// Server is safe for concurrent use.
type Server struct {
	kit    *service.Kit
	conf   func() *kubeletconfig.Config
	pods   *view.Pods
	zpages *zpages
}

// New makes a server. conf is the configuration, nil while it is not known.
func New(kit *service.Kit, conf func() *kubeletconfig.Config, pods *view.Pods) *Server {
	return &Server{kit: kit, conf: conf, pods: pods, zpages: &zpages{conf: conf}}
}

// PodRoutes adds /pods, which the read-only port has too.
func (s *Server) PodRoutes(mux *http.ServeMux) {
	pods := func(w http.ResponseWriter, r *http.Request) { reply.JSON(w, s.pods.Desired(r.Context())) }
	mux.HandleFunc("GET /pods", pods)
	mux.HandleFunc("GET /pods/{$}", pods)
}

// Routes adds all other paths.
func (s *Server) Routes(mux *http.ServeMux) {
	running := func(w http.ResponseWriter, _ *http.Request) { reply.JSON(w, s.pods.Running()) }
	mux.HandleFunc("GET /runningpods", running)
	mux.HandleFunc("GET /runningpods/{$}", running)
	mux.HandleFunc("/configz", s.configz)
	mux.Handle("/flagz", s.zpages)
	mux.Handle("/statusz", s.zpages)
	mux.HandleFunc("/debug/flags/v", s.verbosity)
}

// configz answers with the configuration in force, apiVersion and kind included.
func (s *Server) configz(w http.ResponseWriter, _ *http.Request) {
	conf := s.conf()
	if conf == nil {
		http.Error(w, "configuration not known yet", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	reply.JSON(w, map[string]any{
		"kubeletconfig": conf.Configz(),
		"sextant":       map[string]uint64{"generation": conf.Generation},
	})
}

const (
	// debugVerbosity is the klog verbosity from which on requests are logged.
	debugVerbosity = 4
	// maxVerbosity is longer than any number, in bytes.
	maxVerbosity = 64
)

// verbosity sets the log level of this process, in the kubelet's terms.
func (s *Server) verbosity(w http.ResponseWriter, r *http.Request) {
	say := func(status int, text string) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		reply.Text(w, status, text+"\n")
	}
	if conf := s.conf(); conf != nil && !ptr.Deref(conf.Kubelet.EnableDebugFlagsHandler, true) {
		reply.Disabled("flags endpoint is disabled.")(w, r)
		return
	}
	if r.Method != http.MethodPut {
		say(http.StatusNotAcceptable, "unsupported http method")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxVerbosity))
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
	s.kit.Log.Info("verbosity set", "v", v, "user", auth.UserOf(r.Context()).Name)
	say(http.StatusOK, "successfully set klog.logging.verbosity to "+string(body))
}

// component is what the kubelet calls itself on its pages.
const component = "kubelet"

// listedPaths are those that /statusz lists: the kubelet's, and this product's checks.
var listedPaths = []string{"/healthz", "/livez", "/readyz", "/metrics", "/configz", "/debug/flags/v", "/flagz"}

// zpages serves /flagz and /statusz. Kubernetes' own handlers keep what they once rendered,
// so another configuration gets other ones.
type zpages struct {
	conf     func() *kubeletconfig.Config
	rendered atomic.Pointer[rendered]
}

type rendered struct {
	conf *kubeletconfig.Config
	mux  *http.ServeMux
}

// ServeHTTP implements http.Handler.
func (z *zpages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conf := z.conf()
	if conf == nil {
		http.NotFound(w, r)
		return
	}
	have := z.rendered.Load()
	if have == nil || have.conf != conf {
		have = &rendered{conf, pagesOf(conf)}
		z.rendered.Store(have)
	}
	have.mux.ServeHTTP(w, r)
}

func pagesOf(conf *kubeletconfig.Config) *http.ServeMux {
	mux := http.NewServeMux()
	if conf.Gate("ComponentFlagz") {
		flagz.Install(mux, component, flags{conf})
	}
	if conf.Gate("ComponentStatusz") {
		version := compatibility.NewEffectiveVersionFromString(kubeletconfig.Release, "", "")
		statusz.Install(mux, component, statusz.NewRegistry(version, statusz.WithListedPaths(listedPaths)))
	}
	return mux
}

// flags are the kubelet's command line, with defaults.
type flags struct{ conf *kubeletconfig.Config }

// GetFlagz implements flagz.Reader.
func (f flags) GetFlagz() map[string]string { return f.conf.FlagValues() }

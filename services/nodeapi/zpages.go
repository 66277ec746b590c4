package nodeapi

import (
	"net/http"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"

	"github.com/sextant-node/sextant/pkg/kubeconf"
)

// component is what the kubelet calls itself on its pages.
const component = "kubelet"

// listedPaths are what /statusz lists: the kubelet's, and the checks that are
// ours.
var listedPaths = []string{"/healthz", "/livez", "/readyz", "/metrics", "/configz", "/debug/flags/v", "/flagz"}

// zpages answers /flagz and /statusz. Kubernetes' own handlers keep what they
// once rendered, so a new configuration gets new ones.
type zpages struct{ shown atomic.Pointer[shownPages] }

type shownPages struct {
	conf *kubeconf.Config
	mux  *http.ServeMux
}

func (s *Service) zpage(w http.ResponseWriter, r *http.Request) {
	conf := s.current()
	if conf == nil {
		http.NotFound(w, r)
		return
	}
	shown := s.pages.shown.Load()
	if shown == nil || shown.conf != conf {
		shown = &shownPages{conf, pagesOf(conf)}
		s.pages.shown.Store(shown)
	}
	shown.mux.ServeHTTP(w, r)
}

func pagesOf(conf *kubeconf.Config) *http.ServeMux {
	mux := http.NewServeMux()
	if conf.Gate("ComponentFlagz") {
		flagz.Install(mux, component, flags{conf})
	}
	if conf.Gate("ComponentStatusz") {
		version := compatibility.NewEffectiveVersionFromString(kubeconf.Release, "", "")
		statusz.Install(mux, component, statusz.NewRegistry(version, statusz.WithListedPaths(listedPaths)))
	}
	return mux
}

// flags are the kubelet's command line, defaults where nothing was said.
type flags struct{ conf *kubeconf.Config }

// GetFlagz implements flagz.Reader.
func (f flags) GetFlagz() map[string]string { return f.conf.FlagValues() }

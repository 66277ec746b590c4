// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"fmt"
	"net"
	"net/http"
	"strconv"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/services/nodeapi/internal/access"
	"github.com/sextant-node/sextant/services/nodeapi/internal/certificate"
	"github.com/sextant-node/sextant/services/nodeapi/internal/health"
	"github.com/sextant-node/sextant/services/nodeapi/internal/listen"
	"github.com/sextant-node/sextant/services/nodeapi/internal/logs"
	"github.com/sextant-node/sextant/services/nodeapi/internal/measure"
	"github.com/sextant-node/sextant/services/nodeapi/internal/pages"
	"github.com/sextant-node/sextant/services/nodeapi/internal/stream"
)

// routes are the paths of all ports.
type routes struct {
	access   *access.Access
	health   *health.Checker
	measured *measure.Server
	pages    *pages.Server
	logs     *logs.Server
	streams  *stream.Server
}

// ports are those that a configuration asks for.
func (s routes) ports(k *kubeletv1beta1.KubeletConfiguration, certificates *certificate.Manager) (all []listen.Port, err error) {
	address := func(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
	if port := ptr.Deref(k.HealthzPort, 0); port > 0 {
		all = append(all, listen.Port{Name: "healthz", Address: address(k.HealthzBindAddress, port), Handler: s.health.Local()})
	}
	if !ptr.Deref(k.EnableServer, true) {
		return all, nil
	}
	if k.ReadOnlyPort > 0 {
		all = append(all, listen.Port{Name: "read-only", Address: address(k.Address, k.ReadOnlyPort), Handler: s.access.ReadOnly(s.always())})
	}
	if k.Port > 0 {
		// As in the kubelet, a certificate that is requested is not waited for.
		if bootstrap := k.ServerTLSBootstrap && k.TLSCertFile == ""; certificates.Current() == nil && !bootstrap {
			return nil, fmt.Errorf("serving certificate: %w", certificate.ErrWaiting)
		}
		config, err := listen.TLSConfig(k, certificates.Get)
		if err != nil {
			return nil, err
		}
		all = append(all, listen.Port{Name: "https", Address: address(k.Address, k.Port), TLS: config, Handler: s.https()})
	}
	return all, nil
}

// https is port 10250.
func (s routes) https() http.Handler {
	mux := s.always()
	s.logs.Routes(mux)
	s.streams.Routes(mux)
	s.pages.Routes(mux)
	s.measured.Profiles(mux)
	return s.access.HTTPS(mux)
}

// always are the paths that the read-only port has too.
func (s routes) always() *http.ServeMux {
	mux := http.NewServeMux()
	s.health.Routes(mux)
	s.pages.PodRoutes(mux)
	s.measured.Routes(mux)
	return mux
}

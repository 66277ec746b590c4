// SPDX-License-Identifier: Apache-2.0

package env

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiServer is the service of the API server, in namespace default.
const apiServer = "kubernetes"

// ServiceVars are the variables that describe services to a pod of the namespace: those
// with an address in the namespace itself if links are enabled, and always that of the
// API server. They are sorted by name.
func ServiceVars(namespace string, enableServiceLinks bool, services []*v1.Service) []Var {
	chosen := map[string]*v1.Service{}
	for _, s := range services {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == v1.ClusterIPNone || len(s.Spec.Ports) == 0 {
			continue
		}
		isMaster := s.Namespace == metav1.NamespaceDefault && s.Name == apiServer
		switch {
		case isMaster:
			if chosen[s.Name] == nil {
				chosen[s.Name] = s
			}
		case s.Namespace == namespace && enableServiceLinks:
			chosen[s.Name] = s
		}
	}
	values := map[string]string{}
	for _, s := range chosen {
		describe(s, values)
	}
	return sorted(values)
}

// describe adds the variables of one service: the plain ones, and those that container
// links used to make.
func describe(s *v1.Service, values map[string]string) {
	prefix := varName(s.Name)
	port := func(p v1.ServicePort) string { return strconv.Itoa(int(p.Port)) }
	values[prefix+"_SERVICE_HOST"] = s.Spec.ClusterIP
	values[prefix+"_SERVICE_PORT"] = port(s.Spec.Ports[0])
	for i, p := range s.Spec.Ports {
		if p.Name != "" {
			values[prefix+"_SERVICE_PORT_"+varName(p.Name)] = port(p)
		}
		protocol := string(cmp.Or(p.Protocol, v1.ProtocolTCP))
		lower := strings.ToLower(protocol)
		url := lower + "://" + joinHostPort(s.Spec.ClusterIP, port(p))
		if i == 0 {
			values[prefix+"_PORT"] = url
		}
		link := fmt.Sprintf("%s_PORT_%d_%s", prefix, p.Port, strings.ToUpper(protocol))
		values[link] = url
		values[link+"_PROTO"] = lower
		values[link+"_PORT"] = port(p)
		values[link+"_ADDR"] = s.Spec.ClusterIP
	}
}

func varName(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }

func joinHostPort(host, port string) string {
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		host = "[" + host + "]"
	}
	return host + ":" + port
}

func sorted(values map[string]string) []Var {
	out := make([]Var, 0, len(values))
	for name, value := range values {
		out = append(out, Var{Name: name, Value: value})
	}
	slices.SortFunc(out, func(a, b Var) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// SPDX-License-Identifier: Apache-2.0

package token

import (
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// OfVolumes are the requests for the tokens of the projected volumes that a pod uses, as the service that
// makes those asks for them.
func OfVolumes(p *v1.Pod) []Request {
	var all []Request
	for _, v := range pod.UsedVolumes(p) {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ServiceAccountToken == nil {
				continue
			}
			r := Request{
				Namespace: p.Namespace, ServiceAccount: pod.ServiceAccount(p), Expiration: pod.TokenLife(s.ServiceAccountToken.ExpirationSeconds),
				PodName: p.Name, PodUID: string(p.UID),
			}
			if audience := s.ServiceAccountToken.Audience; audience != "" {
				r.Audiences = []string{audience}
			}
			all = append(all, r)
		}
	}
	return all
}

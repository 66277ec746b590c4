// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/resource/internal/dra"
)

// object is one of the API server: a Node, or a resource claim. Nothing is kept of others.
type object struct {
	node  *v1.Node
	claim dra.Object
}

func decodeObject(_ string, wire *configv1.Object) (o object, err error) {
	switch known := len(wire.GetObject()) > 0; wire.GetKind() {
	case "Node":
		if known {
			o.node = &v1.Node{}
			err = o.node.Unmarshal(wire.GetObject())
		}
	case "ResourceClaim":
		o.claim = dra.Object{Absent: wire.GetAbsent(), Err: wire.GetError()}
		if known {
			o.claim.Claim = &resourceapi.ResourceClaim{}
			err = o.claim.Claim.Unmarshal(wire.GetObject())
		}
	}
	return o, err
}

// concern reports whether one of the keys of config.objects is of a kind, "KIND/".
func concern(keys []string, kind string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, kind) })
}

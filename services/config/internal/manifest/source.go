// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
)

// Source is where manifests come from.
type Source struct {
	// Kind is pod.SourceFile or pod.SourceHTTP.
	Kind string
	// Path of the file, as configured and listed, or the URL. It is part of the
	// identity of the pods.
	Path string
	// NodeName is the name of the node.
	NodeName types.NodeName
}

// String names the source in messages.
func (s Source) String() string {
	if s.Kind == pod.SourceHTTP {
		return "manifest URL " + s.Path
	}
	return "manifest " + s.Path
}

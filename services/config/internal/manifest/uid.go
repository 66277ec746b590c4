// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
)

// uid is the identity of a manifest: 128-bit FNV-1a over the print of the defaulted pod
// followed by the source, in hexadecimal digits. The kubelet computes the same.
func uid(p *v1.Pod, src Source) types.UID {
	h := fnv.New128a()
	_, _ = h.Write(fingerprint(p))
	if src.Kind == pod.SourceFile {
		fmt.Fprintf(h, "host:%s", src.NodeName)
		fmt.Fprintf(h, "file:%s", src.Path)
	} else {
		fmt.Fprintf(h, "url:%s", src.Path)
	}
	return types.UID(hex.EncodeToString(h.Sum(nil)))
}

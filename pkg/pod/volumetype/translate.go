// SPDX-License-Identifier: Apache-2.0

package volumetype

import (
	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	translation "k8s.io/csi-translation-lib"
)

// translator is upstream's, as the scheduler, the controllers and the kubelet have it: all
// of them must come to the same volume handle (KEP-625).
var translator = translation.New()

// Indirect reports whether a volume of a pod is made as a persistent volume: the one of
// its claim, or the one that it is translated to.
func Indirect(p *v1.Pod, v *v1.Volume) bool {
	return ClaimName(p, v) != "" || Of(v).Migrated
}

// Translate is a persistent volume as that of the CSI driver which makes it now; one of a
// type that was not migrated is left as it is.
func Translate(pv *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	if !OfPersistent(pv).Migrated {
		return pv, nil
	}
	return translator.TranslateInTreePVToCSI(logr.Discard(), pv)
}

// TranslateInline is the persistent volume that a migrated volume of a pod is made as.
func TranslateInline(p *v1.Pod, v *v1.Volume) (*v1.PersistentVolume, error) {
	return translator.TranslateInTreeInlineVolumeToCSI(logr.Discard(), v, p.Namespace)
}

// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/pod"
)

// identify gives a defaulted pod its place: UID, name, namespace, node, annotations, and
// for a file the toleration that keeps node problems from evicting it.
func identify(p *v1.Pod, src Source) {
	if p.UID == "" {
		p.UID = uid(p, src)
	}
	p.Name += "-" + strings.ToLower(string(src.NodeName))
	fill(&p.Namespace, metav1.NamespaceDefault)
	p.Spec.NodeName = string(src.NodeName)
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[pod.ConfigHashAnnotation] = string(p.UID)
	p.Annotations[pod.ConfigSourceAnnotation] = src.Kind
	if src.Kind == pod.SourceFile {
		tolerate(p, v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute})
	}
	p.Status = v1.PodStatus{Phase: v1.PodPending}
}

// tolerate adds a toleration unless the pod has one for the same taint, which it
// replaces.
func tolerate(p *v1.Pod, t v1.Toleration) {
	for i := range p.Spec.Tolerations {
		if p.Spec.Tolerations[i].MatchToleration(&t) {
			p.Spec.Tolerations[i] = t
			return
		}
	}
	p.Spec.Tolerations = append(p.Spec.Tolerations, t)
}

// prepare makes a decoded pod a static pod.
func prepare(p *v1.Pod, src Source) error {
	if p.Name == "" {
		return errors.New("metadata.name: Required value: a pod needs a name")
	}
	SetDefaults(p)
	identify(p, src)
	if err := Validate(p).ToAggregate(); err != nil {
		return fmt.Errorf("invalid pod: %w", err)
	}
	if ref := APIReference(p); ref != nil {
		return fmt.Errorf("invalid pod: %w", ref)
	}
	return nil
}

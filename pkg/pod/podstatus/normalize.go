// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxTerminationMessages is what the termination messages of a pod may take together,
// in bytes.
const maxTerminationMessages = 12 * 1024

// normalize brings a status into the form the API server will return it in, so that
// comparing the two reports whether anything changed.
func normalize(p *v1.Pod, s *v1.PodStatus) {
	limit := maxTerminationMessages
	if n := len(p.Spec.Containers) + len(p.Spec.InitContainers) + len(p.Spec.EphemeralContainers); n > 0 {
		limit /= n
	}
	if s.StartTime != nil {
		s.StartTime = new(s.StartTime.Rfc3339Copy())
	}
	for i := range s.Conditions {
		seconds(&s.Conditions[i].LastProbeTime)
		seconds(&s.Conditions[i].LastTransitionTime)
	}
	for _, list := range [][]v1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			normalizeState(&list[i].State, limit)
			normalizeState(&list[i].LastTerminationState, limit)
		}
	}
}

func normalizeState(s *v1.ContainerState, limit int) {
	if s.Running != nil {
		seconds(&s.Running.StartedAt)
	}
	if t := s.Terminated; t != nil {
		seconds(&t.StartedAt)
		seconds(&t.FinishedAt)
		t.Message = cut(t.Message, limit)
	}
}

func seconds(t *metav1.Time) { *t = t.Rfc3339Copy() }

// cut shortens s to at most limit bytes without splitting a character. The API is
// protobuf and JSON: both want valid UTF-8, which the output of a process need not be.
func cut(s string, limit int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

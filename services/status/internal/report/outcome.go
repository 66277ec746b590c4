// SPDX-License-Identifier: Apache-2.0

package report

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sextant-node/sextant/pkg/apianswer"
	"github.com/sextant-node/sextant/services/status/internal/plan"
)

// Outcome is what an answer means for the next write.
type Outcome string

// The outcomes.
const (
	// Accepted: written.
	Accepted Outcome = "accepted"
	// Missing: there is no object of that UID any more.
	Missing Outcome = "missing"
	// Refused: the API server answered, and will not have it as things are.
	Refused Outcome = "refused"
	// Troubled: the API server failed at this object (5xx: an admission webhook of it
	// is down, say), or answered others and not this one.
	Troubled Outcome = "troubled"
	// Unreachable: no answer of the API server, whatever something in front of it says, or
	// one that says "later" to all.
	Unreachable Outcome = "unreachable"
)

// Judge reads the answer to a write.
func Judge(kind plan.Kind, err error) Outcome {
	if err == nil {
		return Accepted
	}
	status, answered := apianswer.Of(err)
	if !answered {
		return Unreachable
	}
	switch code := status.Code; {
	case code == 0, code == http.StatusServiceUnavailable, code == http.StatusTooManyRequests, code == http.StatusUnauthorized:
		return Unreachable
	case code >= http.StatusInternalServerError:
		return Troubled
	case kind == plan.CreateMirror:
		return Refused
	case code == http.StatusNotFound, otherUID(status):
		return Missing
	}
	return Refused
}

// otherUID reports whether the write failed because the object is another one of the
// same name: a precondition (409), or the patch of an immutable field (422).
func otherUID(s metav1.Status) bool {
	switch s.Code {
	case http.StatusConflict:
		return strings.Contains(s.Message, "UID")
	case http.StatusUnprocessableEntity:
		if s.Details == nil {
			return false
		}
		for _, cause := range s.Details.Causes {
			if cause.Field == "metadata.uid" {
				return true
			}
		}
	}
	return false
}

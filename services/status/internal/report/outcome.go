// SPDX-License-Identifier: Apache-2.0

package report

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// Unreachable: no answer of the API server, or one that says "later" to all.
	Unreachable Outcome = "unreachable"
)

// Judge reads the answer to a write.
func Judge(kind plan.Kind, err error) Outcome {
	if err == nil {
		return Accepted
	}
	status, ok := err.(apierrors.APIStatus) //nolint:errorlint // client-go returns it bare
	if !ok {
		return Unreachable
	}
	switch code := status.Status().Code; {
	case code == 0, code == http.StatusServiceUnavailable, code == http.StatusTooManyRequests, code == http.StatusUnauthorized:
		return Unreachable
	case code >= http.StatusInternalServerError && byProxy(status.Status()):
		return Unreachable
	case code >= http.StatusInternalServerError:
		return Troubled
	case kind == plan.CreateMirror:
		return Refused
	case code == http.StatusNotFound, otherUID(status.Status()):
		return Missing
	}
	return Refused
}

// byProxy reports whether an answer is of something in front of the API server:
// client-go marks each that is not a Status object.
func byProxy(s metav1.Status) bool {
	return s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeUnexpectedServerResponse
	})
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

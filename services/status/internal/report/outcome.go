package report

import (
	"net/http"
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
	// Unreachable: no answer, or one that says "later".
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
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests, code == http.StatusUnauthorized, code == 0:
		return Unreachable
	case kind == plan.CreateMirror:
		return Refused
	case code == http.StatusNotFound, otherUID(status.Status()):
		return Missing
	}
	return Refused
}

// otherUID tells whether the write failed because the object is another one of the
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

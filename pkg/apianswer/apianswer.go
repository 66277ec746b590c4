// SPDX-License-Identifier: Apache-2.0

// Package apianswer tells what the API server answered from what something in front of it
// did. A load balancer answers 404 or 403 as well, with a page of its own: that says
// nothing of the object asked for, and is no answer.
package apianswer

import (
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of is the Status object that an error says the API server answered with; false where it
// answered none. client-go marks each answer that is not a Status object.
func Of(err error) (metav1.Status, bool) {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return metav1.Status{}, false
	}
	s := answer.Status()
	if s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == metav1.CauseTypeUnexpectedServerResponse
	}) {
		return metav1.Status{}, false
	}
	return s, true
}

// NotFound reports whether the API server answered that there is no such object.
func NotFound(err error) bool {
	_, answered := Of(err)
	return answered && apierrors.IsNotFound(err)
}

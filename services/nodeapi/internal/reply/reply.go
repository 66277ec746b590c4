// SPDX-License-Identifier: Apache-2.0

// Package reply writes answers in the forms of the kubelet's servers.
package reply

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/sextant-node/sextant/pkg/rpc"
)

// Error is an error with the HTTP status of its answer.
type Error struct {
	Status int
	Text   string
}

// Errorf makes an Error.
func Errorf(status int, format string, args ...any) *Error {
	return &Error{status, fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return e.Text }

// Handler answers an error that its function returns as the kubelet's streaming handlers
// do: with an Error's status, 404 for what the runtime does not know, 500 otherwise.
type Handler func(http.ResponseWriter, *http.Request) error

// ServeHTTP implements http.Handler.
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := h(w, r)
	var known *Error
	switch {
	case err == nil:
	case errors.As(err, &known):
		Text(w, known.Status, err.Error())
	case rpc.Is(err, rpc.NotFound):
		Text(w, http.StatusNotFound, err.Error())
	default:
		Text(w, http.StatusInternalServerError, err.Error())
	}
}

// Text writes an error's text as it is; net/http sniffs its type.
func Text(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the caller may have left
}

// JSON writes a value.
func JSON(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // the caller may have left
}

// Disabled answers that an endpoint is switched off.
func Disabled(reason string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, reason, http.StatusMethodNotAllowed) }
}

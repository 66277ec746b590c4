// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sextant-node/sextant/pkg/wire"
)

// Reason is why a pod or a container does not come up, in the words its status
// shows.
type Reason string

// Error is a step that failed. Message is what the status shows beside the
// reason; Err is the cause and carries the runtime's code, if any.
type Error struct {
	Reason  Reason
	Message string
	Err     error
}

func (e *Error) Error() string { return string(e.Reason) + ": " + e.Message }
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf is the reason and the message of an error of this package; empty
// reason for any other error.
func ReasonOf(err error) (Reason, string) {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason, wire.Text(e.Message)
	}
	return "", plain(err)
}

// CauseOf is the text of what an error of this package comes from, with its gRPC code if it
// has one.
func CauseOf(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Err != nil {
		err = e.Err
	}
	return wire.Text(err.Error())
}

// Away reports whether an error says that no process answered at the other end of a
// socket. A runtime that answers may say Unavailable too, of a registry; what
// gRPC itself says of a connection is worded by it alone.
func Away(err error) bool {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable {
		return false
	}
	text := s.Message()
	return strings.Contains(text, "connection error: ") || strings.Contains(text, "error reading from server: ")
}

// Is makes errors.Is(err, actuate.ErrImagePull) work: a Reason is an error.
func (e *Error) Is(target error) bool {
	r, ok := target.(Reason)
	return ok && e.Reason == r
}

// Error implements error, so that a Reason can be the target of errors.Is.
func (r Reason) Error() string { return string(r) }

// failed makes an Error whose message is the cause's plain text.
func failed(reason Reason, cause error) *Error {
	return &Error{Reason: reason, Message: plain(cause), Err: cause}
}

func failedf(reason Reason, format string, args ...any) *Error {
	return failed(reason, fmt.Errorf(format, args...))
}

// plain is the text of an error without gRPC's "rpc error: code = …". A runtime's may
// hold what a container said.
func plain(err error) string {
	if err == nil {
		return ""
	}
	var s interface{ GRPCStatus() *status.Status }
	if _, direct := err.(interface{ GRPCStatus() *status.Status }); direct && errors.As(err, &s) {
		return wire.Text(s.GRPCStatus().Message())
	}
	return wire.Text(err.Error())
}

// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Kind is what a caller can do about an error. There are six; everything else
// is Internal.
type Kind int

// The kinds of error that cross a socket.
const (
	// Internal: a defect or an unexpected failure; retrying may or may not help.
	Internal Kind = iota
	// Invalid: the request itself is wrong; do not repeat it unchanged.
	Invalid
	// NotFound: the thing named does not exist.
	NotFound
	// Denied: the caller may not do this.
	Denied
	// Conflict: the thing is in another state than the caller thinks.
	Conflict
	// Unavailable: not now; try again.
	Unavailable
)

var kindCodes = map[Kind]codes.Code{
	Internal:    codes.Internal,
	Invalid:     codes.InvalidArgument,
	NotFound:    codes.NotFound,
	Denied:      codes.PermissionDenied,
	Conflict:    codes.FailedPrecondition,
	Unavailable: codes.Unavailable,
}

func (k Kind) String() string {
	switch k {
	case Invalid:
		return "invalid"
	case NotFound:
		return "not found"
	case Denied:
		return "denied"
	case Conflict:
		return "conflict"
	case Unavailable:
		return "unavailable"
	}
	return "internal"
}

// Error is an error with a kind.
type Error struct {
	Kind Kind
	Err  error
	// away: the peer has not answered, because there was no connection or it broke.
	away bool
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error of this kind; %w works.
func (k Kind) Errorf(format string, args ...any) error {
	return &Error{Kind: k, Err: fmt.Errorf(format, args...)}
}

// KindOf tells the kind of any error: one made here, one that came over a
// socket, or a context's.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return Unavailable
	}
	if s, ok := status.FromError(err); ok {
		return kindOfCode(s.Code())
	}
	return Internal
}

// Is reports whether err is of a kind.
func Is(err error, k Kind) bool { return err != nil && KindOf(err) == k }

func kindOfCode(c codes.Code) Kind {
	switch c {
	case codes.InvalidArgument, codes.OutOfRange:
		return Invalid
	case codes.NotFound:
		return NotFound
	case codes.PermissionDenied, codes.Unauthenticated:
		return Denied
	case codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted:
		return Conflict
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted:
		return Unavailable
	}
	return Internal
}

// toWire gives an error the code of its kind. An error that already carries a
// gRPC status (the broker passes the runtime's on) keeps it.
func toWire(err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		if _, ok := status.FromError(err); ok {
			return err
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return status.Error(codes.DeadlineExceeded, err.Error())
		}
		if errors.Is(err, context.Canceled) {
			return status.Error(codes.Canceled, err.Error())
		}
	}
	return status.Error(kindCodes[KindOf(err)], err.Error())
}

// Away reports whether an error of a unary call says that the peer itself is not there: it had
// no connection, or lost it before the answer. One that a peer passes on from somebody else who
// is not there is another.
func Away(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.away
}

// fromWire gives a received status error its kind and plain text; the status
// stays reachable by errors.As and status.FromError.
func fromWire(err error, answered bool) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	return &Error{Kind: kindOfCode(s.Code()), Err: &wireError{s}, away: !answered && s.Code() == codes.Unavailable}
}

type wireError struct{ s *status.Status }

func (w *wireError) Error() string              { return w.s.Message() }
func (w *wireError) GRPCStatus() *status.Status { return w.s }

// SPDX-License-Identifier: Apache-2.0

// Package child runs steps that may never end in processes that can be lost.
//
// A call into a file system whose server is gone waits in the kernel, deaf even
// to SIGKILL, and takes its process with it: the process can neither end nor be
// started again. So such calls are made by children. A child carries out one
// step at a time; one that has not answered by its deadline is killed and left
// to itself. It is counted (Lost) until the kernel lets it go.
//
// While a step on some place is stuck, nothing else is tried there, and until the first
// have answered or are late, no more than two begin there: a dead file system costs two
// children at most, not one for each try.
//
// Children are started when they are needed, kept for a while, and die with
// their parent.
package child

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Steps are what a child can do, by name.
type Steps map[string]func(args json.RawMessage) (any, error)

// Step makes a step of a function that takes its arguments decoded.
func Step[A any](f func(A) (any, error)) func(json.RawMessage) (any, error) {
	return func(raw json.RawMessage) (any, error) {
		var args A
		if err := json.Unmarshal(raw, &args); err != nil {
			return nil, err
		}
		return f(args)
	}
}

type request struct {
	Step string          `json:"step"`
	Args json.RawMessage `json:"args"`
}

type answer struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Serve is a child: it says that it is there by an empty answer, and answers
// requests until there are no more.
func Serve(in io.Reader, out io.Writer, steps Steps) error {
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	if err := answers.Encode(answer{}); err != nil {
		return err
	}
	for {
		var r request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := answers.Encode(carryOut(steps, &r)); err != nil {
			return err
		}
	}
}

func carryOut(steps Steps, r *request) (a answer) {
	step := steps[r.Step]
	if step == nil {
		return answer{Error: fmt.Sprintf("no step %q", r.Step)}
	}
	result, err := step(r.Args)
	if err == nil {
		a.Result, err = json.Marshal(result)
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// Stuck says that a place does not answer.
type Stuck struct {
	// Step and On are what was tried, and where.
	Step, On string
	Since    time.Time
	PID      int

	over bool // guarded by the pool
}

// Error implements error. The text stays the same for as long as it lasts.
func (s *Stuck) Error() string {
	return fmt.Sprintf("%s %s: no answer since %s (process %d)", s.Step, s.On, s.Since.UTC().Format(time.RFC3339), s.PID)
}

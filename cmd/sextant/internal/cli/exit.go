// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/services/supervisor"
)

// What the program exits with beside 0: done, and well.
const (
	exitFailed  = 1 // it could not be done
	exitUsage   = 2 // a wrong verb, flag or argument, or not root
	exitNotWell = 3 // done, and what it shows is not well: no node, a service that is down
)

// codedError is an error with an exit code of its own.
type codedError struct {
	error
	code int
}

func (e *codedError) Unwrap() error { return e.error }

// ExitCode is what the program exits with after an error, nil for none.
func ExitCode(err error) int {
	if coded := (*codedError)(nil); errors.As(err, &coded) {
		return coded.code
	}
	if err != nil {
		return exitFailed
	}
	return 0
}

func usageError(err error) error {
	if err == nil {
		return nil
	}
	return &codedError{err, exitUsage}
}

func notWell(format string, args ...any) error {
	return &codedError{fmt.Errorf(format, args...), exitNotWell}
}

// needRoot is the error of a verb that another user than root calls.
func needRoot(verb, why string) error {
	if os.Geteuid() == 0 {
		return nil
	}
	return usageError(fmt.Errorf("%s needs root: %s (sudo sextant %s)", verb, why, verb))
}

// asRoot checks, before a verb runs, that root calls it.
func asRoot(why string) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error { return needRoot(c.Name(), why) }
}

// checkNode is the error of a verb that asks a node which cannot answer.
func checkNode(verb string, paths house.Paths) error {
	if err := needRoot(verb, "the services of a node answer no other user"); err != nil {
		return err
	}
	if _, err := os.Stat(paths.Run); err != nil {
		return notWell("no node runs here: %w (sextant up starts one, or systemctl start %s)", err, supervisor.Slice)
	}
	return nil
}

// checkAnswers is checkNode, and the error of a node none of whose services answers.
func checkAnswers(verb string, paths house.Paths) error {
	if err := checkNode(verb, paths); err != nil {
		return err
	}
	if !slices.ContainsFunc(house.Services(), func(s house.Service) bool { return listens(paths.Socket(s)) }) {
		return notRunning()
	}
	return nil
}

func listens(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return errors.Is(err, syscall.EAGAIN) // its queue is full
	}
	_ = conn.Close() // nothing was sent
	return true
}

func notRunning() error {
	return notWell("the node does not run: none of its services answers (sextant up starts it, or systemctl start %s)", supervisor.Slice)
}

// silent is the error of a service that does not answer a verb, of a node that runs.
func silent(s house.Service, err error) error {
	return notWell("%s does not answer (sextant status says why): %s", s, strings.ReplaceAll(err.Error(), "\n", "; "))
}

// toTheEnd is for verbs that change the node step by step: what nobody reads any more, as
// after Ctrl-C in a pipe to tee, ends none of them. Without it the kernel would (SIGPIPE).
func toTheEnd() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// usageErrors gives the errors of flags and arguments of all verbs their exit code.
func usageErrors(c *cobra.Command) {
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(err) })
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error { return usageError(check(c, args)) }
	}
	for _, verb := range c.Commands() {
		usageErrors(verb)
	}
}

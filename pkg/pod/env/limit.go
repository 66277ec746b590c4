// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"

	"github.com/sextant-node/sextant/pkg/quiet"
)

// Limits of what references $(NAME) may expand to, in bytes. No container could be
// started with more: Linux takes arguments and variables of 128 KiB at most each
// (MAX_ARG_STRLEN), and never more than 6 MiB of them together (fs/exec.c, three quarters
// of the default stack). Without a limit, ten variables that each refer ten times to the
// one before hold gigabytes.
const (
	// MaxValue is the longest value of a variable, and the longest argument.
	MaxValue = 1 << 20
	// MaxTotal is what all variables, the command and the arguments of a container hold
	// together.
	MaxTotal = 8 << 20
)

// budget counts the bytes of variables and arguments against MaxTotal.
type budget int

func (b *budget) add(name, value string) error {
	*b += budget(len(name) + len(value))
	switch {
	case len(value) > MaxValue:
		return fmt.Errorf("longer than %d bytes", MaxValue)
	case *b > MaxTotal:
		return fmt.Errorf("variables, command and arguments of a container hold more than %d bytes together", MaxTotal)
	}
	return nil
}

// ofVariable names the variable that an error is about.
func ofVariable(name string, err error) error {
	return fmt.Errorf("environment variable %q: %w", quiet.Cut(name, 256), err)
}

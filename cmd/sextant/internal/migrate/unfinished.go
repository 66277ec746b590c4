// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/file"
)

// Unfinished is a change that has begun and has not come to its end: the node is to have an
// agent, though none may run. It is a file that a reboot removes, as that starts the agent.
type Unfinished struct {
	// Args are the flags of the agent that ran, which no process says any more.
	Args []string `json:"args,omitempty"`
}

// Unfinished is the change that has not come to its end, nil for none.
func (f Files) Unfinished() (*Unfinished, error) {
	data, err := os.ReadFile(f.Mark)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	u := &Unfinished{}
	_ = json.Unmarshal(data, u) // damaged, it tells at least that there is one
	return u, nil
}

// begin notes that a change begins.
func (f Files) begin(args []string) error {
	data, err := json.Marshal(Unfinished{Args: args})
	if err != nil {
		return err
	}
	return file.Replace(f.Mark, append(data, '\n'), 0o600)
}

// finish notes that a change has come to its end, there or back.
func (f Files) finish() error {
	return file.Remove(f.Mark)
}

// ErrBusy is the error of Lock while another process changes the node.
var ErrBusy = errors.New("another sextant migrate changes this node")

// Lock has the node to this process alone until unlock is called or the process ends: of two
// changes at once, each would take what the other does for an agent that fails. It is the
// lock of a folder, which leaves no file.
func (f Files) Lock() (unlock func(), err error) {
	etc, err := os.Open(f.Etc)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(etc.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrBusy
	}
	if err != nil {
		return nil, errors.Join(err, etc.Close())
	}
	return func() { etc.Close() }, nil //nolint:errcheck // nothing was written
}

// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sextant-node/sextant/pkg/house"
)

const (
	// mostLog is the size in bytes at which a service's log is rotated; two former ones
	// are kept. Callers of a service can cause log lines, so their number is unbounded.
	mostLog = 10 << 20
	// logPeriod is how often the sizes of the logs are checked.
	logPeriod = time.Second
)

// boundLogs keeps the logs of the services, and the supervisor's own, from filling
// the disk until ctx ends.
func (k *keeper) boundLogs(ctx context.Context) error {
	tick := time.NewTicker(logPeriod)
	defer tick.Stop()
	said := ""
	for {
		err := rotateLogs(k.LogDir, mostLog)
		if text := fmt.Sprint(err); text != said {
			if said = text; err != nil {
				k.log.Error("logs not rotated", "error", text)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// logFile is the log of a service, or of the supervisor, in the folder of the logs.
func logFile(dir, of string) string { return filepath.Join(dir, of+".log") }

// supervisorLog is the name of the supervisor's own log.
const supervisorLog = "supervisor"

// rotateLogs rotates this node's logs in a folder that are larger than most. The folder may
// be that of all programs of the machine.
func rotateLogs(dir string, most int64) error {
	all := []error{rotateAbove(logFile(dir, supervisorLog), most)}
	for _, s := range house.Services() {
		all = append(all, rotateAbove(logFile(dir, string(s)), most))
	}
	return errors.Join(all...)
}

func rotateAbove(path string, most int64) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Size() <= most:
		return nil
	}
	return rotate(path)
}

// rotate moves <log>.1 to <log>.2, copies the log to <log>.1 and truncates it: the
// writer has it open for appending, and goes on at its new end. The log is truncated
// even if it cannot be copied, for the disk may be full.
func rotate(path string) error {
	from, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer from.Close() //nolint:errcheck // truncated, not written
	err = os.Rename(path+".1", path+".2")
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = keepLog(from, path+".1")
	}
	return errors.Join(err, from.Truncate(0))
}

func keepLog(from io.Reader, path string) error {
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.LimitReader(from, 4*mostLog)) // it may grow as fast as it is read
	if err = errors.Join(err, to.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

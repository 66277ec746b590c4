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
	"strings"
	"time"
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

// rotateLogs rotates the logs of a folder that are larger than most.
func rotateLogs(dir string, most int64) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var all []error
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && strings.HasSuffix(e.Name(), ".log") && info.Size() > most {
			all = append(all, rotate(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(all...)
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

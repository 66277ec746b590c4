// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
	"k8s.io/utils/inotify"
)

// errContended ends a node whose lock another agent wants.
var errContended = errors.New("another process opened or deleted the lock file")

// acquireLock takes the lock of --lock-file, and waits for as long as another agent has
// it: a kubelet locks the file in the same way. The lock is held until release, or the
// end of the process.
func acquireLock(ctx context.Context, path string, log *slog.Logger) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--lock-file: %w", err)
	}
	log.Info("acquiring file lock", "path", path)
	taken := make(chan error, 1)
	go func() {
		var err error = unix.EINTR
		for errors.Is(err, unix.EINTR) {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
		taken <- err
	}()
	select {
	case err := <-taken:
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--lock-file: lock %s: %w", path, err), f.Close())
		}
		return func() { f.Close() }, nil //nolint:errcheck // nothing was written
	case <-ctx.Done(): // the call cannot be ended: what it gets yet is given back
		go func() {
			<-taken       //nolint:errcheck // with the lock or without it
			_ = f.Close() // nothing was written
		}()
		return nil, ctx.Err()
	}
}

// watchLock begins what --exit-on-lock-contention asks for: the task returns errContended
// when another process opens or deletes the file.
func watchLock(path string) (task func(ctx context.Context) error, err error) {
	w, err := inotify.NewWatcher()
	if err == nil {
		err = w.AddWatch(path, inotify.InOpen|inotify.InDeleteSelf)
	}
	if err != nil {
		return nil, fmt.Errorf("--exit-on-lock-contention: %w", err)
	}
	return func(ctx context.Context) error {
		select {
		case <-w.Event:
			return errContended
		case err := <-w.Error:
			return fmt.Errorf("--exit-on-lock-contention: %w", err)
		case <-ctx.Done():
			return w.Close()
		}
	}, nil
}

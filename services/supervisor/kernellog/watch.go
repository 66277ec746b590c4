// SPDX-License-Identifier: Apache-2.0

package kernellog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Device is the kernel's log.
const Device = "/dev/kmsg"

// Watch reads the log from the oldest line that the kernel has, and calls found with
// each kill whose sequence is at least from, and the time of it. It returns when ctx ends
// or found fails, with that error, or when the log cannot be read.
func Watch(ctx context.Context, from uint64, found func(Kill, time.Time) error) error {
	// Without O_NONBLOCK a read could not be interrupted.
	log, err := os.OpenFile(Device, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // it was only read
	stop := context.AfterFunc(ctx, func() {
		_ = log.SetReadDeadline(time.Unix(1, 0)) // a read then fails, which ends the loop
	})
	defer stop()
	var parser Parser
	line := make([]byte, maxText)
	for {
		n, err := log.Read(line)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, unix.EPIPE): // lines were overwritten before they were read
			continue
		case err != nil:
			return fmt.Errorf("read %s: %w", Device, err)
		}
		record, err := ParseRecord(line[:n])
		if err != nil {
			continue
		}
		kill, ok := parser.Next(record)
		if !ok || kill.Sequence < from {
			continue
		}
		at, err := wall(kill.Since)
		if err != nil {
			return err
		}
		if err := found(kill, at); err != nil {
			return err
		}
	}
}

// wall is the time of day at a time of the kernel's clock.
func wall(since time.Duration) (time.Time, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return time.Time{}, fmt.Errorf("clock: %w", err)
	}
	return time.Now().Add(since - time.Duration(now.Nano())), nil
}

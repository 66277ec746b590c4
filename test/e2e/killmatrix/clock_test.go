// SPDX-License-Identifier: Apache-2.0

package killmatrix_test

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// jump sets the wall clock of one process on or back, until set again: nobody
// else on the machine may notice. Go asks the kernel's vDSO for the time
// (clock_gettime(2), vdso(7)); the process's own copy of that function is replaced
// by one that asks the kernel and adds. The monotonic clock goes on as it does when
// a machine's clock is set.
func jump(ctx context.Context, pid int, by time.Duration) (err error) {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("not on %s: the replacement is written for amd64", runtime.GOARCH)
	}
	low, high, err := vdso(pid)
	if err != nil {
		return err
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close() //nolint:errcheck // every write is checked
	page := make([]byte, high-low)
	if _, err := mem.ReadAt(page, int64(low)); err != nil {
		return err
	}
	offset, err := symbol(page, "__vdso_clock_gettime")
	if err != nil {
		return err
	}
	err = harness.Within(ctx, time.Minute, func(context.Context) error { return stopOutside(pid, low, high) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Kill(pid, unix.SIGCONT)) }()
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: CLOCK_REALTIME is 0
		0x75, 0x0d, // jne to the return
		0x49, 0xba, // mov r10, the seconds
	}
	code = binary.LittleEndian.AppendUint64(code, uint64(int64(by/time.Second)))
	code = append(code, 0x4c, 0x01, 0x16, // add [rsi], r10
		0xc3) // ret
	_, err = mem.WriteAt(code, int64(low+offset))
	return err
}

// vdso is where the kernel's functions are in a process.
func vdso(pid int) (low, high uint64, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close() //nolint:errcheck // read only
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasSuffix(lines.Text(), "[vdso]") {
			_, err := fmt.Sscanf(lines.Text(), "%x-%x", &low, &high)
			return low, high, err
		}
	}
	return 0, 0, fmt.Errorf("process %d has no vDSO", pid)
}

func symbol(image []byte, name string) (uint64, error) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, err
	}
	all, err := f.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range all {
		if s.Name == name {
			return s.Value, nil
		}
	}
	return 0, fmt.Errorf("the vDSO has no %s", name)
}

// stopOutside stops a process while none of its threads is within a range of its
// code. When it fails the process goes on.
func stopOutside(pid int, low, high uint64) (err error) {
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Kill(pid, unix.SIGCONT))
		}
	}()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil {
		return err
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			return err
		}
		f := strings.Fields(string(b)) // …, stack pointer, program counter; or "running"
		at, err := strconv.ParseUint(strings.TrimPrefix(f[len(f)-1], "0x"), 16, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", task, err)
		}
		if at >= low && at < high {
			return fmt.Errorf("%s is asking for the time", task)
		}
	}
	return nil
}

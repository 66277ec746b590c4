// SPDX-License-Identifier: Apache-2.0

package supervisor

import "syscall"

// LimitOpenFiles sets how many files the process may have open (RLIMIT_NOFILE, getrlimit(2);
// a kubelet's maxOpenFiles), as the limit and as its bound. The processes that it starts
// inherit it.
func LimitOpenFiles(n uint64) error {
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
}

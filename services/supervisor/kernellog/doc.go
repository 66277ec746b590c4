// SPDX-License-Identifier: Apache-2.0

// Package kernellog reads the kernel's log (/dev/kmsg) for processes that the kernel
// killed for want of memory.
//
// Opening that file takes CAP_SYSLOG (kernel.dmesg_restrict), and what is in it is about
// everything on the machine. So the supervisor, which is root, reads it, and resource
// gets the kills and nothing else. Parser finds them, as a pure function of the lines.
// Lines that a process wrote to the file have another facility than the kernel's, and
// do not count. The names of processes and cgroups in the kernel's lines are those that
// containers gave them: they are bounded, and printable ASCII (the kernel escapes the
// rest as \xHH).
package kernellog

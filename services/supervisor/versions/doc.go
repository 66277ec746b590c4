// SPDX-License-Identifier: Apache-2.0

// Package versions keeps the versions of the program side by side and gives each
// service the one it runs.
//
// It owns the library folder (/usr/lib/sextant): versions/<v>/sextant is a
// program, <service> a link to the one the service runs, .previous/<service> to the
// one it ran before, and while that is on trial .trial/<service> too. A link is replaced
// in one step, so a kill at any moment leaves the old version or the new one, and the
// next trial knows which to go back to.
//
// Trial judges a version after a switch to it: pure, time is an input.
package versions

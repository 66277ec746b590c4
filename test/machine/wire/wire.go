// SPDX-License-Identifier: Apache-2.0

// Package wire is what the test and the agent in the machine say to each other.
package wire

// Request is a script for the shell, which may take so many seconds.
type Request struct {
	ID      int    `json:"id"`
	Script  string `json:"script"`
	Seconds int    `json:"seconds"`
}

// Answer is how it ended; the first one, with a boot id and no ID, says that the
// machine is there.
type Answer struct {
	ID    int    `json:"id,omitempty"`
	Boot  string `json:"boot,omitempty"`
	Out   string `json:"out,omitempty"`
	Error string `json:"error,omitempty"`
}

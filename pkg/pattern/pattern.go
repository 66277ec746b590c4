// SPDX-License-Identifier: Apache-2.0

// Package pattern has regular expressions that are compiled when they are first
// used. Every process of the node is the same program: what a package prepares at
// start, each of them pays for, whether it needs it or not.
package pattern

import (
	"regexp"
	"sync"
)

// Lazy is a regular expression that is compiled once, when it is first asked
// for; it panics then if it is none.
func Lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

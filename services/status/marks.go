// SPDX-License-Identifier: Apache-2.0

package status

import "strings"

// everything stands among the keys of the pods to look at for all of them; the other keys
// are UIDs, and namespace/name of static pods.
const everything = ""

// orEverything is what a change of these keys marks: without keys it is one of the whole
// feed.
func orEverything(keys []string) []string {
	if len(keys) == 0 {
		return []string{everything}
	}
	return keys
}

// isName reports whether a key is the name of a static pod.
func isName(key string) bool { return strings.Contains(key, "/") }

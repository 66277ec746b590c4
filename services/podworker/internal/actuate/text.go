// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"unicode/utf8"

	"github.com/sextant-node/sextant/pkg/wire"
)

// lastText makes text of the end of what a container said: at most limit bytes, which
// begin with a whole character. What has as many may have been cut already.
func lastText(said []byte, limit int) string {
	cut := func(s string) string {
		if len(s) < limit {
			return s
		}
		s = s[len(s)-limit:]
		for range utf8.UTFMax - 1 {
			if s != "" && !utf8.RuneStart(s[0]) {
				s = s[1:]
			}
		}
		return s
	}
	return cut(wire.Text(cut(string(said)))) // what replaces bytes may be longer than they are
}

// firstText is at most the first limit bytes of what a container said, as text.
func firstText(said []byte, limit int) string {
	cut := func(s string) string {
		if len(s) <= limit {
			return s
		}
		end := limit
		for end > limit-utf8.UTFMax && end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		return s[:end]
	}
	return cut(wire.Text(cut(string(said))))
}

// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"testing"

	"github.com/sextant-node/sextant/services/status/internal/history"
)

func TestNews(t *testing.T) {
	type step struct {
		epoch          string
		version, known uint64
		news           bool
	}
	for name, steps := range map[string][]step{
		"versions grow": {{"a", 5, 0, true}, {"a", 6, 5, true}, {"a", 9, 6, true}},
		"a repeat":      {{"a", 5, 0, true}, {"a", 5, 5, false}, {"a", 5, 7, false}},
		"a late echo":   {{"a", 5, 9, false}, {"a", 7, 9, false}, {"a", 9, 9, false}, {"a", 10, 9, true}},
		"config relists after a restore, with a lower version": {{"a", 900, 0, true}, {"a", 50, 900, true}, {"a", 51, 50, true}},
		"a write is answered with a lower version first":       {{"a", 900, 0, true}, {"a", 900, 50, false}, {"a", 51, 50, true}},
		"config starts with what was on its disk":              {{"a", 900, 0, true}, {"b", 800, 900, false}, {"b", 800, 900, false}, {"b", 901, 900, true}},
		"a restore, and config starts":                         {{"a", 900, 0, true}, {"b", 900, 900, false}, {"b", 50, 900, true}},
		"a version that is no number":                          {{"a", 0, 0, false}, {"a", 5, 0, true}, {"a", 0, 5, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var l history.Listed
			for i, s := range steps {
				if got := l.News(s.epoch, s.version, s.known); got != s.news {
					t.Errorf("step %d: %d to one who knows %d is news: %t", i, s.version, s.known, got)
				}
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package history weighs what config lists of one API object against what else is known
// of it, by resourceVersion.
//
// Within one history of the API server the versions of an object grow, so the higher one
// is the later (KEP-5504), whichever way it came. After a restore of etcd from a backup
// they begin again at a lower number. Two signs tell that: config lists a lower version
// than it did before, and a write is answered with a lower version than the object had
// when the write was made.
package history

// Listed is what config listed last of one object. The zero value: nothing yet.
type Listed struct {
	epoch   string
	version uint64
}

// News takes in a version that config lists, and reports whether that says anything new
// to a reader who knows version known. epoch is that of config's feed where it may list
// objects of an earlier life, from its disk; empty where it does not.
func (l *Listed) News(epoch string, version, known uint64) bool {
	was := *l
	*l = Listed{epoch, version}
	if was.epoch == epoch && was.version != 0 {
		switch {
		case version == was.version:
			return false // an answer to a write may be later, with a lower version
		case version < was.version:
			return true
		}
	}
	return version > known
}

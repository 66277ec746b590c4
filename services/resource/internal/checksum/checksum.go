// SPDX-License-Identifier: Apache-2.0

// Package checksum is that of the kubelet's state files: FNV-1a of a text that holds the
// names of Go types. Its own name and that of its type are in that text and must stay as
// they are, as must those of the packages that are the files.
package checksum

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"k8s.io/utils/dump"
)

// Checksum of a file.
type Checksum uint64

// New is the sum of a file, of which the sum is 0.
func New(file any) Checksum { return As(file, "", "") }

// As is New where a type of another name is meant: an older version of a file.
func As(file any, name, meant string) Checksum {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(strings.Replace(dump.ForHash(file), name, meant, 1))) // it does not fail
	return Checksum(hash.Sum32())
}

// Verify reports, in the kubelet's words, a sum that is none of those that a file may have.
// 0 is not checked.
func Verify(sum Checksum, valid ...Checksum) error {
	if sum != 0 && !slices.Contains(valid, sum) {
		return fmt.Errorf("checkpoint is corrupted: checksum %d, want %d", sum, valid[len(valid)-1])
	}
	return nil
}

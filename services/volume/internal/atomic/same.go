// SPDX-License-Identifier: Apache-2.0

package atomic

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// errDiffers ends the comparison.
var errDiffers = errors.New("differs")

// same reports whether a data folder holds exactly these files. Owners are not
// compared: they were set before the folder got its name.
func same(dir string, files map[string]File) bool {
	seen := 0
	err := filepath.WalkDir(dir, func(full string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, full)
		if err != nil {
			return err
		}
		want, ok := files[filepath.ToSlash(rel)]
		if !ok || !d.Type().IsRegular() {
			return errDiffers
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm() != want.Mode.Perm() || info.Size() != int64(len(want.Data)) {
			return errDiffers
		}
		data, err := os.ReadFile(full)
		if err != nil {
			return err
		}
		if !bytes.Equal(data, want.Data) {
			return errDiffers
		}
		seen++
		return nil
	})
	return err == nil && seen == len(files)
}

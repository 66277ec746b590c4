// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	strictjson "sigs.k8s.io/json"

	"github.com/sextant-node/sextant/pkg/file"
)

// maxFileSize is the largest configuration file that is read, in bytes.
const maxFileSize = 1 << 20

// dropInSuffix is what the name of a drop-in ends with.
const dropInSuffix = ".conf"

// listDropIns returns the files below dir that end in .conf, in the order in
// which they apply: every directory's entries by name, subdirectories in place.
func listDropIns(files fs.FS, dir string) ([]string, error) {
	var found []string
	err := fs.WalkDir(files, fsPath(dir), func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p == fsPath(dir) && !e.IsDir():
			return errors.New("is not a directory")
		case e.IsDir() || path.Ext(p) != dropInSuffix:
			return nil
		}
		found = append(found, path.Join("/", p))
		return nil
	})
	return found, err
}

// readFile reads a regular file of at most maxFileSize bytes. Other kinds of
// files are refused, not opened: reading a pipe could wait for ever.
func readFile(files fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(files, fsPath(name))
	if err != nil {
		return nil, file.Cause(err)
	}
	if info.IsDir() {
		return nil, errors.New("is a directory")
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("is not a regular file (%s)", info.Mode().Type())
	}
	f, err := files.Open(fsPath(name))
	if err != nil {
		return nil, file.Cause(err)
	}
	defer func() { _ = f.Close() }()
	data, err := file.Bounded(f, maxFileSize, fmt.Errorf("is larger than %d bytes", maxFileSize))
	return data, file.Cause(err)
}

// fsPath turns an absolute path into one of an fs.FS rooted at "/".
func fsPath(abs string) string {
	if p := path.Clean(abs)[1:]; p != "" {
		return p
	}
	return "."
}

// mergeDropIns applies drop-ins to k, one after the other, by JSON merge patch:
// objects and maps merge, everything else is replaced, null removes a field.
// What is missing at the end is to be defaulted again.
func mergeDropIns(k *kubeletv1beta1.KubeletConfiguration, patches [][]byte) (*kubeletv1beta1.KubeletConfiguration, error) {
	merged, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	for _, patch := range patches {
		if merged, err = jsonpatch.MergePatch(merged, patch); err != nil {
			return nil, err
		}
	}
	return decodeJSON(merged)
}

// decodeJSON decodes a configuration that has passed decodeFile.
func decodeJSON(data []byte) (*kubeletv1beta1.KubeletConfiguration, error) {
	k := &kubeletv1beta1.KubeletConfiguration{}
	strict, err := strictjson.UnmarshalStrict(data, k)
	if err != nil {
		return nil, err
	}
	return k, errors.Join(strict...)
}

// SPDX-License-Identifier: Apache-2.0

package env

import (
	"errors"
	"fmt"
	"io/fs"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// envFile is a file in a volume of the pod.
type envFile struct{ volume, path string }

// fileValues is what a container takes from an envFile.
type fileValues struct {
	wanted map[string]bool
	read   bool
	values map[string]string
	// failed is why the file was not read, broken where it cannot be parsed.
	failed, broken error
}

// fileKey takes a variable from an env file in a volume (KEP-3721).
func (b *builder) fileKey(name string, ref *v1.FileKeySelector) (string, bool, error) {
	if b.Files == nil {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", ref.VolumeName)
	}
	file, err := b.file(ref)
	switch {
	case err != nil:
		return "", false, ofVariable(name, err)
	case errors.Is(file.failed, fs.ErrNotExist):
		if ptr.Deref(ref.Optional, false) {
			return "", false, nil
		}
		return "", false, fmt.Errorf("environment variable file %q not found in volume %q", ref.Path, ref.VolumeName)
	case file.failed != nil:
		return "", false, fmt.Errorf("environment variable file %q in volume %q: %w", ref.Path, ref.VolumeName, file.failed)
	}
	value, ok := file.values[ref.Key]
	if !ok && file.broken != nil {
		return "", false, fmt.Errorf("couldn't parse env file %q in volume %q: %w", ref.Path, ref.VolumeName, file.broken)
	}
	if value == "" {
		if ptr.Deref(ref.Optional, false) {
			return "", false, nil
		}
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
	}
	return value, true, nil
}

// file reads a file once, for all variables of the container.
func (b *builder) file(ref *v1.FileKeySelector) (*fileValues, error) {
	if b.files == nil {
		b.files = map[envFile]*fileValues{}
		for i := range b.Container.Env {
			if from := b.Container.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil {
				id := envFile{from.FileKeyRef.VolumeName, from.FileKeyRef.Path}
				if b.files[id] == nil {
					b.files[id] = &fileValues{wanted: map[string]bool{}}
				}
				b.files[id].wanted[from.FileKeyRef.Key] = true
			}
		}
	}
	f := b.files[envFile{ref.VolumeName, ref.Path}]
	if f.read {
		return f, nil
	}
	f.read = true
	var content []byte
	if content, f.failed = b.Files.EnvFile(ref.VolumeName, ref.Path); f.failed == nil {
		f.values, f.broken = FileValues(content, f.wanted)
	}
	for name, value := range f.values {
		if err := b.held.add(name, value); err != nil {
			return nil, err
		}
	}
	return f, nil
}

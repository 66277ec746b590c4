// SPDX-License-Identifier: Apache-2.0

// Package cdi writes CDI specifications (Container Device Interface 0.6.0), as drivers of
// devices do for the container runtime. A device of a test is a variable in its container,
// so that the environment of a process shows which devices it has.
package cdi

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type spec struct {
	Version string   `json:"cdiVersion"`
	Kind    string   `json:"kind"`
	Devices []device `json:"devices"`
}

type device struct {
	Name  string `json:"name"`
	Edits edits  `json:"containerEdits"`
}

type edits struct {
	Env []string `json:"env"`
}

// prefix begins the variables of devices; = and what is between are of the kind and name.
const prefix = "HAS "

// Write makes a file of a specification, at once, for devices of a kind (VENDOR/CLASS).
func Write(dir, file, kind string, names ...string) error {
	s := spec{Version: "0.6.0", Kind: kind}
	for _, name := range names {
		s.Devices = append(s.Devices, device{name, edits{[]string{prefix + kind + " " + name + "=yes"}}})
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, file)
	// The runtime reads *.json.
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path+".tmp", text, 0o644), os.Rename(path+".tmp", path))
}

// Remove removes such a file.
func Remove(dir, file string) error {
	if err := os.Remove(filepath.Join(dir, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Held are the devices that a process has by its environment ("KIND NAME", sorted).
func Held(environ []string) (devices []string) {
	for _, variable := range environ {
		if rest, ok := strings.CutPrefix(variable, prefix); ok {
			device, _, _ := strings.Cut(rest, "=")
			devices = append(devices, device)
		}
	}
	slices.Sort(devices)
	return devices
}

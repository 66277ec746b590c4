// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/mounts"
	"github.com/sextant-node/sextant/pkg/pod"
)

// plugin is the name on disk.
const plugin = "kubernetes.io/csi"

// disk is where the kubelet has the volumes of drivers.
type disk struct{ layout pod.Layout }

func (d disk) root() string    { return filepath.Join(d.layout.GlobalPlugins(), plugin) }
func (d disk) devices() string { return filepath.Join(d.root(), "volumeDevices") }

// stage is where a driver stages a volume.
func (d disk) stage(r *Request) string {
	if r.Block {
		return filepath.Join(d.devices(), "staging", r.Name)
	}
	return filepath.Join(d.root(), r.Driver, fmt.Sprintf("%x", sha256.Sum256([]byte(r.Handle))), "globalmount")
}

// target is where a driver publishes a volume to a pod.
func (d disk) target(r *Request) string {
	if r.Block {
		return filepath.Join(d.devices(), "publish", r.Name, string(r.UID))
	}
	return filepath.Join(d.layout.Volume(r.UID, plugin, r.Name), "mount")
}

// link is the pod's name of a block volume's device.
func (d disk) link(uid types.UID, name string) string {
	return filepath.Join(d.layout.VolumeDevice(uid, plugin), name)
}

// dataFile says what a volume on disk is. Keys are the kubelet's.
const dataFile = "vol_data.json"

type volData struct {
	Name       string `json:"specVolID,omitempty"`
	Handle     string `json:"volumeHandle"`
	Driver     string `json:"driverName"`
	Node       string `json:"nodeName,omitempty"`
	Attachment string `json:"attachmentID,omitempty"`
	Lifecycle  string `json:"volumeLifecycleMode,omitempty"`
	Label      string `json:"seLinuxMountContext,omitempty"`
}

func writeData(dir string, data volData) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return file.Replace(filepath.Join(dir, dataFile), text, 0o600)
}

func readData(dir string) (volData, error) {
	var data volData
	text, err := os.ReadFile(filepath.Join(dir, dataFile))
	if err != nil {
		return data, err
	}
	if err := json.Unmarshal(text, &data); err != nil {
		return data, err
	}
	if data.Driver == "" || data.Handle == "" {
		return data, errors.New("driverName or volumeHandle is missing")
	}
	return data, nil
}

// clear removes what a driver leaves of a path, and the notes beside it. A path
// that is mounted still is an error: nothing is removed through it.
func clearPath(path string, notes bool) error {
	if there, err := mounts.On(path); err != nil || there {
		if err == nil {
			err = fmt.Errorf("the driver says that it is done, but %s is mounted still", path)
		}
		return err
	}
	if err := file.Remove(path); err != nil || !notes {
		return err
	}
	dir := filepath.Dir(path)
	return errors.Join(file.Remove(filepath.Join(dir, dataFile)), file.Remove(filepath.Join(dir, dataFile+file.Half)), file.Remove(dir))
}

// found lists what vol_data.json files say, of both agents.
func (d disk) found() (uses []use, stages []staged) {
	files, _ := filepath.Glob(filepath.Join(d.layout.Pods(), "*", "volumes", pod.EscapePluginName(plugin), "*", dataFile))
	for _, path := range files {
		dir := filepath.Dir(path)
		data, err := readData(dir)
		if err != nil {
			continue
		}
		uid := types.UID(strings.Split(strings.TrimPrefix(dir, d.layout.Pods()+"/"), "/")[0])
		uses = append(uses, use{
			UID: uid, Name: filepath.Base(dir), Driver: data.Driver, Handle: data.Handle,
			Inline: data.Lifecycle == "Ephemeral", Attachable: data.Lifecycle != "Ephemeral", Target: filepath.Join(dir, "mount"),
		})
	}
	files, _ = filepath.Glob(filepath.Join(d.root(), "*", "*", dataFile))
	for _, path := range files {
		if data, err := readData(filepath.Dir(path)); err == nil {
			stages = append(stages, staged{Driver: data.Driver, Handle: data.Handle, Path: filepath.Join(filepath.Dir(path), "globalmount")})
		}
	}
	files, _ = filepath.Glob(filepath.Join(d.devices(), "*", "data", dataFile))
	for _, path := range files {
		data, err := readData(filepath.Dir(path))
		if err != nil {
			continue
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(path)))
		stages = append(stages, staged{Driver: data.Driver, Handle: data.Handle, Block: true, Name: name, Path: filepath.Join(d.devices(), "staging", name)})
		targets, _ := os.ReadDir(filepath.Join(d.devices(), "publish", name))
		for _, t := range targets {
			uses = append(uses, use{
				UID: types.UID(t.Name()), Name: name, Driver: data.Driver, Handle: data.Handle, Attachable: true, Block: true,
				Target: filepath.Join(d.devices(), "publish", name, t.Name()),
			})
		}
	}
	return uses, stages
}

// forgetDevice removes the folders of a block volume that no pod uses.
func (d disk) forgetDevice(name string) error {
	dir := filepath.Join(d.devices(), name)
	return errors.Join(
		file.Remove(filepath.Join(dir, "data", dataFile)), file.Remove(filepath.Join(dir, "data")), file.Remove(dir),
		file.Remove(filepath.Join(d.devices(), "publish", name)),
	)
}

// SPDX-License-Identifier: Apache-2.0

// Package checkpoint is the kubelet's file kubelet_internal_checkpoint: which container has
// which devices, and what their plugins answered. Either agent reads what the other wrote.
//
// The checksum of the file is FNV-1a of a text that holds the names of Go types; those of
// this package, and its own name, are the kubelet's and must stay as they are.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
)

// Name of the file, in the folder of device plugins.
const Name = "kubelet_internal_checkpoint"

// WithoutNUMA is the NUMA node of devices that have none.
const WithoutNUMA int64 = -1

// DevicesPerNUMA are device IDs by NUMA node.
type DevicesPerNUMA map[int64][]string

// PodDevicesEntry is what a container has of one resource.
type PodDevicesEntry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     DevicesPerNUMA
	// AllocResp is a ContainerAllocateResponse of v1beta1.
	AllocResp []byte
}

type checkpointData struct {
	PodDeviceEntries []PodDevicesEntry
	// RegisteredDevices are the healthy devices by resource.
	RegisteredDevices map[string][]string
}

type content struct {
	Data     checkpointData
	Checksum uint64
}

func (d checkpointData) checksum() uint64 {
	t := make(text, 0, 1<<16)
	t.data(d)
	h := fnv.New32a()
	_, _ = h.Write(t) // it does not fail
	return uint64(h.Sum32())
}

// errCorrupt is the kubelet's text.
var errCorrupt = errors.New("checkpoint is corrupted")

// Read reads a file; one that is not there holds nothing.
func Read(path string) (entries []PodDevicesEntry, registered map[string][]string, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var c content
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, nil, fmt.Errorf("%s: %w: %w", path, errCorrupt, err)
	}
	if c.Checksum != c.Data.checksum() {
		return nil, nil, fmt.Errorf("%s: %w: checksum %d, want %d", path, errCorrupt, c.Checksum, c.Data.checksum())
	}
	return c.Data.PodDeviceEntries, c.Data.RegisteredDevices, nil
}

// Marshal makes the content of a file.
func Marshal(entries []PodDevicesEntry, registered map[string][]string) ([]byte, error) {
	c := content{Data: checkpointData{PodDeviceEntries: entries, RegisteredDevices: registered}}
	c.Checksum = c.Data.checksum()
	return json.Marshal(c)
}

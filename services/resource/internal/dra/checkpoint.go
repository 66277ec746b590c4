// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// The kubelet's file dra_manager_state. Its names are the kubelet's, and so is the order
// of the fields: the sum is of the text.
type (
	checkpoint struct {
		Data     string
		Checksum uint32 // CRC-32 (IEEE) of Data
	}
	checkpointData struct {
		Kind               string `json:"kind,omitempty"`
		APIVersion         string `json:"apiVersion,omitempty"`
		ClaimInfoStateList []claimState
	}
	claimState struct {
		ClaimUID    types.UID
		ClaimName   string
		Namespace   string
		PodUIDs     map[string]struct{}
		DriverState map[string]driverState
	}
	driverState struct{ Devices []Device }
)

const (
	checkpointKind    = "DRACheckpoint"
	checkpointVersion = "checkpoint.dra.kubelet.k8s.io/v1"
)

// errCorrupt is the kubelet's word for a file whose sum is wrong.
var errCorrupt = errors.New("checkpoint is corrupted")

// encode writes claims as the kubelet's file has them, and returns the sum in it. Claims
// that no driver was called for are in it too, as they are in the kubelet's.
func encode(claims map[string]*Claim) (text []byte, sum uint32, err error) {
	data := checkpointData{Kind: checkpointKind, APIVersion: checkpointVersion}
	for _, k := range slices.Sorted(maps.Keys(claims)) {
		c := claims[k]
		state := claimState{
			ClaimUID: c.UID, ClaimName: c.Name, Namespace: c.Namespace,
			PodUIDs: map[string]struct{}{}, DriverState: map[string]driverState{},
		}
		for _, uid := range c.Pods {
			state.PodUIDs[uid] = struct{}{}
		}
		for name, d := range c.Drivers {
			state.DriverState[name] = driverState{d.Devices}
		}
		data.ClaimInfoStateList = append(data.ClaimInfoStateList, state)
	}
	inner, err := json.Marshal(data)
	if err != nil {
		return nil, 0, err
	}
	sum = crc32.ChecksumIEEE(inner)
	text, err = json.Marshal(checkpoint{Data: string(inner), Checksum: sum})
	return text, sum, err
}

// decode reads the kubelet's file. Which drivers have prepared a claim is not in it: every
// stage is unsure.
func decode(text []byte) (claims map[string]*Claim, sum uint32, err error) {
	var outer checkpoint
	if err := json.Unmarshal(text, &outer); err != nil {
		return nil, 0, err
	}
	if crc32.ChecksumIEEE([]byte(outer.Data)) != outer.Checksum {
		return nil, 0, errCorrupt
	}
	var data checkpointData
	if err := json.Unmarshal([]byte(outer.Data), &data); err != nil {
		return nil, 0, fmt.Errorf("field Data: %w", err)
	}
	claims = map[string]*Claim{}
	for _, state := range data.ClaimInfoStateList {
		c := &Claim{
			UID: state.ClaimUID, Name: state.ClaimName, Namespace: state.Namespace,
			Pods: slices.Sorted(maps.Keys(state.PodUIDs)), Drivers: map[string]Driver{},
		}
		for name, d := range state.DriverState {
			c.Drivers[name] = Driver{Stage: unsure, Devices: d.Devices}
		}
		claims[c.key()] = c
	}
	return claims, outer.Checksum, nil
}

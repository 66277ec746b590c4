// SPDX-License-Identifier: Apache-2.0

package house

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// Identities maps each service to the uid it runs under. Root (uid 0) is always
// the operator as well.
type Identities map[Service]uint32

// ReadIdentities reads the table `sextant up` (or the package) wrote. Without
// the file every service is taken to run under self, the caller's own uid, and
// peers cannot be told apart: good enough for one process under a debugger.
func ReadIdentities(path string, self uint32) (Identities, error) {
	ids := Identities{}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		for _, s := range Services() {
			ids[s] = self
		}
		return ids, nil
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(data, &ids); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for s := range ids {
		if !IsService(s) {
			return nil, fmt.Errorf("%s: unknown service %q", path, s)
		}
	}
	return ids, nil
}

// IsService reports whether s is a process of the house.
func IsService(s Service) bool { return slices.Contains(Services(), s) }

// Peers lists the services a uid may speak for. More than one only where
// services share a uid.
func (ids Identities) Peers(uid uint32) []Service {
	var peers []Service
	for _, s := range Services() {
		if have, ok := ids[s]; ok && have == uid {
			peers = append(peers, s)
		}
	}
	if uid == 0 {
		peers = append(peers, Operator)
	}
	return peers
}

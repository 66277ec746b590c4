// SPDX-License-Identifier: Apache-2.0

package journal

// PutConfig remembers the node's configuration (kubeletconfig JSON).
func (j *Journal) PutConfig(data []byte) {
	j.put("config/kubelet", func() error { return j.configs.Put("kubelet", data) })
}

// Config is the configuration remembered, nil without one.
func (j *Journal) Config() ([]byte, error) {
	data, _, err := j.configs.Get("kubelet")
	return data, err
}

// PutCredential remembers the node's credential (a kubeconfig), so that the Lease
// is renewed after a restart while config is away. nil forgets it.
func (j *Journal) PutCredential(data []byte) {
	j.put("config/credential", func() error {
		if data == nil {
			return j.configs.Delete("credential")
		}
		return j.configs.Put("credential", data)
	})
}

// Credential is the credential remembered, nil without one.
func (j *Journal) Credential() ([]byte, error) {
	data, _, err := j.configs.Get("credential")
	return data, err
}

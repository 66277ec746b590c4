package journal

// PutConfig remembers the node's configuration (kubeconf JSON).
func (j *Journal) PutConfig(data []byte) {
	j.put("config/kubelet", func() error { return j.configs.Put("kubelet", data) })
}

// Config is the configuration remembered, nil without one.
func (j *Journal) Config() ([]byte, error) {
	data, _, err := j.configs.Get("kubelet")
	return data, err
}

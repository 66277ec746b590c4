// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	strictjson "sigs.k8s.io/json"
)

// configSchema is the version of the JSON form of Config.
const configSchema = 1

// Config is everything that configures the node agent: the effective
// KubeletConfiguration and the settings that only flags have. It is a value;
// [Config.DeepCopy] before changing one that others read.
type Config struct {
	// Kubelet is the effective configuration, defaults filled in, apiVersion
	// and kind set, as /configz shows it.
	Kubelet kubeletv1beta1.KubeletConfiguration `json:"kubelet"`
	// Node holds the settings that only flags have.
	Node Node `json:"node"`
	// Files lists the configuration files read, in the order of application.
	Files []string `json:"files,omitempty"`
	// Flags is the command line, in order.
	Flags []Saying `json:"flags,omitempty"`
	// Origins has for each field that was set where it was set last.
	Origins Origins `json:"origins,omitempty"`
	// Generation counts the configurations that were in force on the node. It is that of
	// the item of the feed this one was read from, and zero elsewhere.
	Generation uint64 `json:"-"`
}

// Node is the part of the configuration that has no field in
// KubeletConfiguration, because it belongs to one node rather than to a fleet.
// All paths are absolute.
type Node struct {
	// Name is the name of the Node object: the host name, or
	// --hostname-override, trimmed and in lower case.
	Name string `json:"name"`
	// HostnameOverridden is set if Name was given by --hostname-override.
	HostnameOverridden bool `json:"hostnameOverridden,omitempty"`
	// IPs are the addresses of --node-ip: none, one, or one of each family.
	// "0.0.0.0" and "::" alone mean: prefer that family.
	IPs []string `json:"ips,omitempty"`
	// Labels are set on the Node object at registration.
	Labels map[string]string `json:"labels,omitempty"`
	// ExternalCloudProvider is set if --cloud-provider=external was given.
	ExternalCloudProvider bool `json:"externalCloudProvider,omitempty"`

	// KubeConfig is the path of the API server credentials. Empty means
	// standalone: no API server at all.
	KubeConfig string `json:"kubeconfig,omitempty"`
	// BootstrapKubeConfig is used to obtain a client certificate while
	// KubeConfig does not exist or is of no use.
	BootstrapKubeConfig string `json:"bootstrapKubeconfig,omitempty"`
	// CertDir holds generated keys and certificates.
	CertDir string `json:"certDir"`
	// RootDir is the state directory, /var/lib/kubelet by default.
	RootDir string `json:"rootDir"`

	// RuntimeCgroups is the cgroup of the container runtime, for statistics.
	RuntimeCgroups string `json:"runtimeCgroups,omitempty"`
	// ImageCredentialProviderConfig is a file, or a directory of files.
	ImageCredentialProviderConfig string `json:"imageCredentialProviderConfig,omitempty"`
	// ImageCredentialProviderBinDir holds the plugins' binaries.
	ImageCredentialProviderBinDir string `json:"imageCredentialProviderBinDir,omitempty"`
	// LockFile is locked for as long as the agent runs; empty for none.
	LockFile string `json:"lockFile,omitempty"`
	// ExitOnLockContention makes the agent exit when another process opens LockFile.
	ExitOnLockContention bool `json:"exitOnLockContention,omitempty"`
	// HousekeepingInterval is the period of container usage collection.
	HousekeepingInterval time.Duration `json:"housekeepingInterval"`

	// MinimumContainerTTL is the age before which a dead container is kept (deprecated flag).
	MinimumContainerTTL time.Duration `json:"minimumContainerTTL,omitempty"`
	// MaxDeadContainersPerContainer is how many dead instances of a container to keep (deprecated flag).
	MaxDeadContainersPerContainer int32 `json:"maxDeadContainersPerContainer"`
	// MaxDeadContainers is how many dead containers to keep in all; negative for no limit (deprecated flag).
	MaxDeadContainers int32 `json:"maxDeadContainers"`
	// MounterPath is a binary used instead of mount(2) (deprecated flag).
	MounterPath string `json:"mounterPath,omitempty"`
	// IgnoreHardEvictionInAllocatable leaves hard eviction thresholds out of allocatable (deprecated flag).
	IgnoreHardEvictionInAllocatable bool `json:"ignoreHardEvictionInAllocatable,omitempty"`
}

// defaultNode returns the defaults of the flag-only options, kubelet v1.36.
func defaultNode() Node {
	return Node{
		CertDir:                       "/var/lib/kubelet/pki",
		RootDir:                       "/var/lib/kubelet",
		HousekeepingInterval:          10 * time.Second,
		MaxDeadContainersPerContainer: 1,
		MaxDeadContainers:             -1,
	}
}

// Standalone reports whether there is no API server: no --kubeconfig was given.
func (c *Config) Standalone() bool { return c.Node.KubeConfig == "" }

// Gate reports whether the named feature gate is on under this configuration.
// An unknown name is off.
func (c *Config) Gate(name string) bool {
	gate, known := gateIndex()[name]
	return known && gate.in(c.Kubelet.FeatureGates)
}

// GateStates maps every known feature gate to whether it is on.
func (c *Config) GateStates() map[string]bool { return gatesOf(c.Kubelet.FeatureGates) }

// CgroupRoot returns the cgroup under which pods live: cgroupRoot, or "/" when
// that is empty and QoS cgroups are on.
func (c *Config) CgroupRoot() string {
	if c.Kubelet.CgroupRoot == "" && ptr.Deref(c.Kubelet.CgroupsPerQOS, true) {
		return "/"
	}
	return c.Kubelet.CgroupRoot
}

// ServingCert returns the files of the HTTPS certificate and key. generate is set if
// they were not configured, so a missing pair is to be self-signed there. With
// serverTLSBootstrap and no files all three are empty: the pair is obtained from the
// API server.
func (c *Config) ServingCert() (cert, key string, generate bool) {
	k := &c.Kubelet
	if k.TLSCertFile == "" && k.TLSPrivateKeyFile == "" && !k.ServerTLSBootstrap {
		return path.Join(c.Node.CertDir, "kubelet.crt"), path.Join(c.Node.CertDir, "kubelet.key"), true
	}
	return k.TLSCertFile, k.TLSPrivateKeyFile, false
}

// Configz returns what GET /configz answers as kubeletconfig: the effective
// configuration with the files of a self-signed certificate filled in.
func (c *Config) Configz() *kubeletv1beta1.KubeletConfiguration {
	k := c.Kubelet.DeepCopy()
	k.TLSCertFile, k.TLSPrivateKeyFile, _ = c.ServingCert()
	return k
}

// Redacted returns a copy fit for logs: header values that may carry
// credentials are replaced.
func (c *Config) Redacted() *Config {
	d := c.DeepCopy()
	for k := range d.Kubelet.StaticPodURLHeader {
		d.Kubelet.StaticPodURLHeader[k] = []string{masked}
	}
	for i := range d.Flags {
		if slices.Contains(classified, d.Flags[i].Name) {
			d.Flags[i].Value = masked
		}
	}
	return d
}

// DeepCopy returns a copy that shares nothing with c.
func (c *Config) DeepCopy() *Config {
	d := *c
	d.Kubelet = *c.Kubelet.DeepCopy()
	d.Node.IPs = slices.Clone(c.Node.IPs)
	d.Node.Labels = maps.Clone(c.Node.Labels)
	d.Files = slices.Clone(c.Files)
	d.Flags = slices.Clone(c.Flags)
	d.Origins = maps.Clone(c.Origins)
	return &d
}

// wireConfig is the JSON form of Config.
type wireConfig struct {
	Schema int `json:"schema"`
	Config
}

// Marshal returns the JSON form, for publishing and for keeping.
func (c *Config) Marshal() ([]byte, error) {
	return json.Marshal(wireConfig{Schema: configSchema, Config: *c})
}

// Unmarshal is the inverse of [Config.Marshal]. It fills no defaults and
// validates nothing, but it refuses bytes of another schema or that hold no
// configuration. Unknown fields are skipped, so that a service one release
// behind reads what its newer neighbour publishes.
func Unmarshal(data []byte) (*Config, error) {
	var w wireConfig
	if err := strictjson.UnmarshalCaseSensitivePreserveInts(data, &w); err != nil {
		return nil, fmt.Errorf("kubelet configuration: %w", err)
	}
	if w.Schema != configSchema {
		return nil, fmt.Errorf("kubelet configuration: schema %d, want %d", w.Schema, configSchema)
	}
	if w.Kubelet.Kind != Kind || w.Kubelet.APIVersion != APIVersion {
		return nil, fmt.Errorf("kubelet configuration: kubelet: apiVersion %q, kind %q, want %s and %s",
			w.Kubelet.APIVersion, w.Kubelet.Kind, APIVersion, Kind)
	}
	return &w.Config, nil
}

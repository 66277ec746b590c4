// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
)

// nodeFlags are the settings that only flags can make, none of them deprecated.
var nodeFlags = []flagRow{
	{name: "config", level: Honoured, bind: str(func(t *target) *string { return &t.raw.config }),
		usage: "KubeletConfiguration file, YAML or JSON; without it built-in defaults and flags apply"},
	{name: "config-dir", level: Honoured, bind: str(func(t *target) *string { return &t.raw.configDir }),
		usage: "directory whose *.conf files are merged, in lexical order and recursively, onto the configuration file"},
	{name: "kubeconfig", level: Honoured, bind: str(func(t *target) *string { return &t.node.KubeConfig }),
		usage: "credentials for the API server; without it the node runs standalone"},
	{name: "bootstrap-kubeconfig", level: Honoured,
		bind:  str(func(t *target) *string { return &t.node.BootstrapKubeConfig }),
		usage: "credentials with which to obtain a client certificate while --kubeconfig does not exist"},
	{name: "cert-dir", level: Honoured, bind: str(func(t *target) *string { return &t.node.CertDir }),
		usage: "directory of generated keys and certificates; not used when --tls-cert-file and --tls-private-key-file are given"},
	{name: "hostname-override", level: Honoured, bind: str(func(t *target) *string { return &t.raw.hostnameOverride }),
		usage: "name of the node instead of the host name"},
	{name: "node-ip", level: Honoured, bind: str(func(t *target) *string { return &t.raw.nodeIP }),
		usage: "IP address of the node, or an IPv4 and an IPv6 one separated by a comma; 0.0.0.0 or :: prefers that family"},
	{name: "cloud-provider", level: Honoured, bind: str(func(t *target) *string { return &t.raw.cloudProvider }),
		usage: `"external" when a cloud controller manager initialises the node, else empty`},
	{name: "root-dir", level: Honoured, bind: str(func(t *target) *string { return &t.node.RootDir }),
		usage: "directory for the node's state: volumes, plugins, checkpoints"},
	{name: "node-labels", level: Honoured, bind: value(func(t *target) pflag.Value {
		return new(cliflag.ConfigurationMap(t.node.Labels))
	}),
		usage: "labels (key=value,...) set on the Node at registration"},
	{name: "seccomp-default", field: "seccompDefault", current: true,
		bind:  boolean(func(t *target) *bool { return &t.raw.seccompDefault }),
		usage: "use the RuntimeDefault seccomp profile where a container names none"},
	{name: "runtime-cgroups", level: Honoured, bind: str(func(t *target) *string { return &t.node.RuntimeCgroups }),
		usage: "cgroup of the container runtime, for statistics"},
	{name: "image-credential-provider-config", level: Honoured,
		bind:  str(func(t *target) *string { return &t.node.ImageCredentialProviderConfig }),
		usage: "file, or directory of files, that configures image credential provider plugins"},
	{name: "image-credential-provider-bin-dir", level: Honoured,
		bind:  str(func(t *target) *string { return &t.node.ImageCredentialProviderBinDir }),
		usage: "directory of the image credential provider plugins"},
	{name: "lock-file", level: Honoured, bind: str(func(t *target) *string { return &t.node.LockFile }),
		usage: "file to lock while the agent runs (alpha)"},
	{name: "exit-on-lock-contention", level: Honoured, bind: boolean(func(t *target) *bool { return &t.node.ExitOnLockContention }),
		usage: "exit when another process opens --lock-file (alpha)"},
	{name: "housekeeping-interval", level: Warned, reason: "usage is read when it is asked for, not on a timer",
		bind:  dur(func(t *target) *time.Duration { return &t.node.HousekeepingInterval }),
		usage: "period of container usage collection"},
	{name: "windows-service", level: Refused, reason: "this is a Linux build",
		bind:  boolean(func(t *target) *bool { return &t.raw.windowsService }),
		usage: "run as a Windows service (Windows builds only)"},
	{name: "windows-priorityclass", level: Refused, reason: "this is a Linux build",
		bind:  str(func(t *target) *string { return &t.raw.windowsPriorityClass }),
		usage: "priority class of the process (Windows builds only)"},
	{name: "version", level: Honoured, usage: "print the version and exit; raw prints all of it",
		bind: func(fs *pflag.FlagSet, r flagRow, t *target) {
			fs.Var(versionValue{&t.raw.version}, r.name, r.usage)
			fs.Lookup(r.name).NoOptDefVal = "true"
		}},
}

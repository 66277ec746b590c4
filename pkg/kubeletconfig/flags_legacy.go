// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// Why the oldest flags are going away.
const (
	useEviction = "use --eviction-hard or --eviction-soft instead"
	willGo      = "it is to be removed without replacement"
	fromAdvisor = "it belongs to cAdvisor and became a kubelet flag by mistake"
	noAdvisor   = "there is no cAdvisor in Sextant, so it has no effect"
)

// legacyFlags are deprecated and have no field in KubeletConfiguration.
var legacyFlags = []flagRow{
	{name: "minimum-container-ttl-duration", deprecated: useEviction, level: Honoured,
		bind:  dur(func(t *target) *time.Duration { return &t.node.MinimumContainerTTL }),
		usage: "age before which a dead container is kept"},
	{name: "maximum-dead-containers-per-container", deprecated: useEviction, level: Honoured,
		bind:  num32(func(t *target) *int32 { return &t.node.MaxDeadContainersPerContainer }),
		usage: "dead instances to keep of each container"},
	{name: "maximum-dead-containers", deprecated: useEviction, level: Honoured,
		bind:  num32(func(t *target) *int32 { return &t.node.MaxDeadContainers }),
		usage: "dead containers to keep in all; negative for no limit"},
	{name: "experimental-mounter-path", deprecated: willGo,
		level: Warned, reason: "volumes are mounted with the mount command",
		bind:  str(func(t *target) *string { return &t.node.MounterPath }),
		usage: "binary that mounts volumes"},
	{name: "experimental-allocatable-ignore-eviction", deprecated: willGo,
		level: Honoured,
		bind:  boolean(func(t *target) *bool { return &t.node.IgnoreHardEvictionInAllocatable }),
		usage: "leave hard eviction thresholds out of the node's allocatable"},

	advisor("application-metrics-count-limit", "int", "100"),
	advisor("boot-id-file", "string", "/proc/sys/kernel/random/boot_id"),
	advisor("container-hints", "string", "/etc/cadvisor/container_hints.json"),
	advisor("containerd", "string", "/run/containerd/containerd.sock"),
	advisor("containerd-namespace", "string", "k8s.io"),
	advisor("enable-load-reader", "bool", "false"),
	advisor("event-storage-age-limit", "string", "default=0"),
	advisor("event-storage-event-limit", "string", "default=0"),
	advisor("global-housekeeping-interval", "duration", "1m0s"),
	advisor("log-cadvisor-usage", "bool", "false"),
	advisor("machine-id-file", "string", "/etc/machine-id,/var/lib/dbus/machine-id"),
	advisor("storage-driver-user", "string", "root"),
	advisor("storage-driver-password", "string", "root"),
	advisor("storage-driver-host", "string", "localhost:8086"),
	advisor("storage-driver-db", "string", "cadvisor"),
	advisor("storage-driver-table", "string", "stats"),
	advisor("storage-driver-secure", "bool", "false"),
	advisor("storage-driver-buffer-duration", "duration", "1m0s"),
}

// advisor returns the row of a cAdvisor leftover: accepted with its syntax
// checked, then forgotten.
func advisor(name, typ, def string) flagRow {
	return flagRow{
		name: name, usage: "no effect", deprecated: fromAdvisor, level: Warned, reason: noAdvisor,
		bind: func(fs *pflag.FlagSet, r flagRow, t *target) {
			fs.Var(&leftover{typ: typ, val: def}, r.name, r.usage)
			if typ == "bool" {
				fs.Lookup(r.name).NoOptDefVal = "true"
			}
		},
	}
}

// leftover is a value that is not read.
type leftover struct{ typ, val string }

func (v *leftover) String() string { return v.val }
func (v *leftover) Type() string   { return v.typ }
func (v *leftover) Set(s string) error {
	var err error
	switch v.typ {
	case "int":
		_, err = strconv.ParseInt(s, 0, 64)
	case "bool":
		_, err = strconv.ParseBool(s)
	case "duration":
		_, err = time.ParseDuration(s)
	}
	if err != nil {
		return err
	}
	v.val = s
	return nil
}

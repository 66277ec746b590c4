// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"fmt"
	"os"
	"strconv"
)

// settings is what the containerd configuration is rendered from: plain values,
// so that the rendering is the same on every machine.
type settings struct {
	Root, State, Socket        string
	SocketGID                  int
	SandboxImage               string
	CNIBinDir, CNIConfDir      string
	CDIDir                     string
	CertsDir, OptDir           string
	Runc, RuncRoot             string
	Snapshotter                string
	RestrictOOM, SystemdCgroup bool
	StatsPeriod, LogLevel      string
}

// renderConfig writes the configuration for one containerd release. 1.x knows
// format 2, where CRI is one plugin; from 2.0 on the image and the runtime half
// have sections of their own and the gRPC half keeps the streaming settings.
func renderConfig(v Version, s settings) (string, error) {
	text, format := configV3, "3"
	// The folder became a list of folders with 2.1.
	cniBinDirs := "bin_dir = " + strconv.Quote(s.CNIBinDir)
	switch {
	case v.Major == 1:
		text, format = configV2, "2"
	case v.Major > 2:
		return "", fmt.Errorf("containerd %s: configuration format not known, 1.x and 2.x are", v)
	case v.Minor >= 1:
		cniBinDirs = "bin_dirs = [" + strconv.Quote(s.CNIBinDir) + "]"
	}
	statsPeriod := ""
	if s.StatsPeriod != "" && (v.Major > 2 || v.Major == 2 && v.Minor >= 3) {
		statsPeriod = "\n  stats_collect_period = " + strconv.Quote(s.StatsPeriod)
	}
	values := map[string]string{
		"Format": format, "CNIBinDirs": cniBinDirs,
		"Root": strconv.Quote(s.Root), "State": strconv.Quote(s.State),
		"Socket": strconv.Quote(s.Socket), "TTRPC": strconv.Quote(s.Socket + ".ttrpc"), "SocketGID": strconv.Itoa(s.SocketGID),
		"SandboxImage": strconv.Quote(s.SandboxImage), "Snapshotter": strconv.Quote(s.Snapshotter),
		"CNIBinDir": strconv.Quote(s.CNIBinDir), "CNIConfDir": strconv.Quote(s.CNIConfDir),
		"CDIDir": strconv.Quote(s.CDIDir), "CertsDir": strconv.Quote(s.CertsDir), "OptDir": strconv.Quote(s.OptDir), "VerifierDir": strconv.Quote(s.OptDir + "-verifiers"),
		"Runc": strconv.Quote(s.Runc), "RuncRoot": strconv.Quote(s.RuncRoot),
		"RestrictOOM": strconv.FormatBool(s.RestrictOOM), "SystemdCgroup": strconv.FormatBool(s.SystemdCgroup),
		"StatsPeriod": statsPeriod, "LogLevel": strconv.Quote(s.LogLevel),
	}
	return os.Expand(text, func(name string) string { return values[name] }), nil
}

// configHead and the texts below name with $ what renderConfig fills in. text/template,
// which finds methods by name, would keep the linker from dropping methods without
// callers, in the whole program.
const configHead = `# Written by localruntime at every start; edits are lost.
version = $Format
`

const configV2 = configHead + common + `
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = $SandboxImage
  restrict_oom_score_adj = $RestrictOOM
  netns_mounts_under_state_dir = true
  tolerate_missing_hugetlb_controller = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = $CNIBinDir
    conf_dir = $CNIConfDir
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = $Snapshotter
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = $Runc
        Root = $RuncRoot
        SystemdCgroup = $SystemdCgroup
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.second]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.second.options]
        BinaryName = $Runc
        Root = $RuncRoot
        SystemdCgroup = $SystemdCgroup
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = $CertsDir
`

const configV3 = configHead + common + `
[plugins."io.containerd.cri.v1.images"]
  snapshotter = $Snapshotter
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = $SandboxImage
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = $CertsDir
[plugins."io.containerd.cri.v1.runtime"]
  cdi_spec_dirs = [$CDIDir]
  restrict_oom_score_adj = $RestrictOOM
  netns_mounts_under_state_dir = true
  tolerate_missing_hugetlb_controller = true$StatsPeriod
  [plugins."io.containerd.cri.v1.runtime".cni]
    $CNIBinDirs
    conf_dir = $CNIConfDir
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = $Runc
        Root = $RuncRoot
        SystemdCgroup = $SystemdCgroup
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.second]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.second.options]
        BinaryName = $Runc
        Root = $RuncRoot
        SystemdCgroup = $SystemdCgroup
[plugins."io.containerd.grpc.v1.cri"]
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.image-verifier.v1.bindir"]
  bin_dir = $VerifierDir
`

// common holds for every format. The snapshotters that need a device or a
// special file system are left out: they only delay the start.
const common = `root = $Root
state = $State
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
]

[debug]
  level = $LogLevel

[grpc]
  address = $Socket
  uid = 0
  gid = $SocketGID

[ttrpc]
  address = $TTRPC
  uid = 0
  gid = 0

[plugins."io.containerd.internal.v1.opt"]
  path = $OptDir
`

package localruntime

import (
	"fmt"
	"strings"
	"text/template"
)

// settings is what the containerd configuration is rendered from: plain values,
// so that the rendering is the same on every machine.
type settings struct {
	Root, State, Socket        string
	SocketGID                  int
	SandboxImage               string
	CNIBinDir, CNIConfDir      string
	CertsDir, OptDir           string
	Runc, RuncRoot             string
	Snapshotter                string
	RestrictOOM, SystemdCgroup bool
	LogLevel                   string
	PluralBinDirs              bool
}

// renderConfig writes the configuration for one containerd release. 1.x knows
// format 2, where CRI is one plugin; from 2.0 on the image and the runtime half
// have sections of their own and the gRPC half keeps the streaming settings.
func renderConfig(v Version, s settings) (string, error) {
	t := configV3
	switch {
	case v.Major == 1:
		t = configV2
	case v.Major > 2:
		return "", fmt.Errorf("containerd %s: configuration format not known, 1.x and 2.x are", v)
	}
	s.PluralBinDirs = v.Major == 2 && v.Minor >= 1
	var b strings.Builder
	if err := t.Execute(&b, s); err != nil {
		return "", fmt.Errorf("render containerd configuration: %w", err)
	}
	return b.String(), nil
}

const configHead = `# Written by localruntime at every start; edits are lost.
version = {{.Format}}
`

var configV2 = template.Must(template.New("v2").Parse(strings.ReplaceAll(configHead, "{{.Format}}", "2") + common + `
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {{printf "%q" .SandboxImage}}
  restrict_oom_score_adj = {{.RestrictOOM}}
  netns_mounts_under_state_dir = true
  tolerate_missing_hugetlb_controller = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {{printf "%q" .CNIBinDir}}
    conf_dir = {{printf "%q" .CNIConfDir}}
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = {{printf "%q" .Snapshotter}}
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = {{printf "%q" .Runc}}
        Root = {{printf "%q" .RuncRoot}}
        SystemdCgroup = {{.SystemdCgroup}}
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = {{printf "%q" .CertsDir}}
`))

var configV3 = template.Must(template.New("v3").Parse(strings.ReplaceAll(configHead, "{{.Format}}", "3") + common + `
[plugins."io.containerd.cri.v1.images"]
  snapshotter = {{printf "%q" .Snapshotter}}
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = {{printf "%q" .SandboxImage}}
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = {{printf "%q" .CertsDir}}
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {{.RestrictOOM}}
  netns_mounts_under_state_dir = true
  tolerate_missing_hugetlb_controller = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    {{if .PluralBinDirs}}bin_dirs = [{{printf "%q" .CNIBinDir}}]{{else}}bin_dir = {{printf "%q" .CNIBinDir}}{{end}}
    conf_dir = {{printf "%q" .CNIConfDir}}
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = {{printf "%q" .Runc}}
        Root = {{printf "%q" .RuncRoot}}
        SystemdCgroup = {{.SystemdCgroup}}
[plugins."io.containerd.grpc.v1.cri"]
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.image-verifier.v1.bindir"]
  bin_dir = {{printf "%q" (print .OptDir "-verifiers")}}
`))

// common holds for every format. The snapshotters that need a device or a
// special file system are left out: they only delay the start.
const common = `root = {{printf "%q" .Root}}
state = {{printf "%q" .State}}
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
]

[debug]
  level = {{printf "%q" .LogLevel}}

[grpc]
  address = {{printf "%q" .Socket}}
  uid = 0
  gid = {{.SocketGID}}

[ttrpc]
  address = {{printf "%q" (print .Socket ".ttrpc")}}
  uid = 0
  gid = 0

[plugins."io.containerd.internal.v1.opt"]
  path = {{printf "%q" .OptDir}}
`

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/sextant-node/sextant/test/compat/seen"
)

// line is something that no test has seen, and why it is said.
type line struct{ what, why string }

// possible is what the program and its packages allow and no test has run.
var possible = []line{
	{"Debian 13, Ubuntu 24.04 and later", "the units ask for systemd 249, the package for nothing that Debian 12 or Ubuntu 22.04 has alone"},
	{"RPM distributions with systemd 249 and later", "`make release` builds the RPM, which rpm has installed, upgraded and removed on Debian (`TestRPM`)"},
	{"systemd of any age, or none", "`sextant up`, or a program called `kubelet`: without the limits and sandboxes of the units"},
	{"arm64", "`make release` builds it; packages without root and real parts are tested under emulation (`make test-arm64`)"},
	{"containerd 2.0 to 2.3", "between the versions seen, all with CRI v1"},
	{"CRI-O", "CRI v1; its socket and cgroups are named in the units, nothing has run on it"},
	{"API servers v1.38 and v1.39", "a kubelet's skew ends three minors above its own; fields of other minors are kept as they are"},
	{"API server v1.34", "older than a kubelet's may be; has all the versions of resources that are asked for without a gate"},
	{"kubeadm of other minors", "the flags and files that it writes are those of the kubelet v1.36"},
	{"SELinux", "labels are set; tested with a policy that is made up"},
}

// impossible is what does not work, whatever the machine.
var impossible = []line{
	{"Windows", "Linux alone"},
	{"FlexVolume plugins", "not run; `sextant check` names the volumes"},
	{"dockershim, CRI v1alpha2", "no longer part of Kubernetes"},
	{"kernels before 4.18 with cgroup v2, before 3.15 otherwise", "as for the runtimes; Landlock confines services of `sextant up` from 5.13 on"},
	{"a read-only `/usr` without a package manager", "versions of the program are below `/usr/lib/sextant`"},
	{"images with users from 64200 to 64208", "they share limits with the node's services: the pod runs and gets the event `UserOfNodeService`"},
	{"local volumes with `volumeMode: Filesystem` on a block device", "such a device is not formatted and mounted; `volumeMode: Block` is honoured"},
}

// page is docs/compatibility.md.
func page(runs []seen.Run) string {
	var b strings.Builder
	b.WriteString(`# Compatibility

Printed by ` + "`make compatibility`" + ` from what tests recorded ([compatibility.jsonl](compatibility.jsonl)), not written by
hand.

## Seen

Packages of tests that passed, with the parts they ran on. Rows with a choice of tests are runs of these alone.

| tests | system | kernel | cgroup | arch | with | commit, date |
|---|---|---|---|---|---|---|
`)
	for _, r := range runs {
		name := r.Package
		if r.Tests != "" {
			name += " `" + r.Tests + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s, %s |\n", name, r.System, r.Kernel, r.Cgroup, r.Arch,
			strings.Join(r.With, ", "), r.Commit, r.Time.Format("2006-01-02"))
	}
	b.WriteString("\nWhat an emulated machine with cgroup v2 alone has shown is in [evidence.md](evidence.md).\n")
	table := func(title, intro string, lines []line) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| what | why |\n|---|---|\n", title, intro)
		for _, l := range lines {
			fmt.Fprintf(&b, "| %s | %s |\n", l.what, l.why)
		}
	}
	table("Possible", "Nothing known is against it, and no test here has seen it.", possible)
	table("Not possible", "It does not work, or not as with a kubelet.", impossible)
	return b.String()
}

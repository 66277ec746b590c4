// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// Level says what a finding means for the change-over.
type Level string

const (
	// Blocks: the node would not start, or pods that run would not start again.
	Blocks Level = "blocks"
	// Differs: the node works and does something otherwise than a kubelet.
	Differs Level = "differs"
	// Unknown: it could not be looked at.
	Unknown Level = "unknown"
	// OK: looked at, and as it should be.
	OK Level = "ok"
)

// Finding is one thing that was looked at.
type Finding struct {
	Level Level `json:"level"`
	// Subject is what was looked at: a file and line, a flag, a pod, a port.
	Subject string `json:"subject"`
	// Message says what is so, and for what blocks what to do.
	Message string `json:"message"`
}

const (
	// oldestSystemd has all that the package's units ask for.
	oldestSystemd = 249
	// leastFree is what state, logs and a second version of the program need, in bytes.
	leastFree = 512 << 20
)

// Judge says what the facts mean, what blocks first.
func Judge(f *Facts) []Finding {
	j := &judge{}
	j.configuration(f)
	j.runtime(&f.Runtime)
	j.machine(f)
	j.manifests(f)
	j.pods(f)
	for _, u := range f.Unread {
		j.add(Unknown, u.What, "could not be read: %s", u.Error)
	}
	order := []Level{Blocks, Differs, Unknown, OK}
	slices.SortStableFunc(j.found, func(a, b Finding) int { return slices.Index(order, a.Level) - slices.Index(order, b.Level) })
	return j.found
}

// Worst is the level of the gravest finding.
func Worst(found []Finding) Level {
	worst := OK
	for _, f := range found {
		switch {
		case f.Level == Blocks:
			return Blocks
		case f.Level != OK:
			worst = Differs
		}
	}
	return worst
}

type judge struct{ found []Finding }

func (j *judge) add(level Level, subject, format string, args ...any) {
	j.found = append(j.found, Finding{level, subject, fmt.Sprintf(format, args...)})
}

func (j *judge) configuration(f *Facts) {
	for _, p := range f.Problems {
		j.add(Blocks, "configuration", "%s", p)
	}
	for _, w := range f.Warnings {
		if w.Kind == kubeletconfig.NotHonoured {
			j.add(Differs, w.Source.String()+": "+w.Name, "%s", w.Message)
		}
	}
	if len(f.Problems) == 0 {
		j.add(OK, "configuration", "is understood (%s), node %s", f.Source, f.Node)
	}
}

func (j *judge) runtime(r *Runtime) {
	switch {
	case r.Endpoint == "": // the configuration could not be read
		return
	case r.Error != "":
		j.add(Blocks, "runtime", "%s does not answer: %s", r.Endpoint, r.Error)
		return
	case r.Refused != "":
		j.add(Blocks, "runtime", "%s", r.Refused)
	}
	if r.Ready != "" {
		j.add(Blocks, "runtime", "%s %s is not ready: %s", r.Name, r.Version, r.Ready)
	} else {
		j.add(OK, "runtime", "%s %s answers at %s", r.Name, r.Version, r.Endpoint)
	}
	if r.Network != "" {
		j.add(Blocks, "network", "the runtime has none, so the node will not be Ready: %s", r.Network)
	} else {
		j.add(OK, "network", "the runtime has one")
	}
}

func (j *judge) machine(f *Facts) {
	switch {
	case f.Systemd == 0:
		j.add(Differs, "systemd", "does not run this machine: sextant up keeps the services, without the limits of the package's units")
	case f.Systemd < oldestSystemd:
		j.add(Blocks, "systemd", "is %d, and the package's units need %d: use sextant up, or a program called kubelet", f.Systemd, oldestSystemd)
	default:
		j.add(OK, "systemd", "is %d", f.Systemd)
	}
	j.add(OK, "kernel", "is %s, cgroup %s", f.Kernel, f.Cgroup)
	for _, p := range f.Ports {
		if f.Agent == (Agent{}) { // else it is the agent's
			j.add(Blocks, "port "+p.Name, "%s is taken: %s", p.Address, p.Error)
		}
	}
	for _, d := range f.Disks {
		if d.Free < leastFree {
			j.add(Blocks, d.Path, "has %d MiB free, and %d MiB are needed", d.Free>>20, leastFree>>20)
		} else {
			j.add(OK, d.Path, "has %d MiB free", d.Free>>20)
		}
	}
	for _, a := range f.Accounts {
		j.add(Blocks, fmt.Sprintf("uid %d", a.UID), "is that of %s, and of a service of Sextant: give sextant up another --uid-base", a.Name)
	}
	switch {
	case f.Agent.Sextant:
		j.add(OK, "agent", "Sextant runs this node already")
	case f.Agent.PID > 0:
		j.add(OK, "agent", "the kubelet runs as process %d", f.Agent.PID)
	}
}

// manifests says what is not made of them. Sextant keeps the pod of a manifest that it has
// accepted before; on a kubelet's node it has accepted none, and would end the pod.
func (j *judge) manifests(f *Facts) {
	var lost []string
	for _, name := range f.Runtime.Static {
		if !f.Agent.Sextant && !slices.ContainsFunc(f.Pods, func(p Pod) bool { return p.Name == name }) {
			lost = append(lost, name)
		}
	}
	for _, m := range f.Manifests {
		switch {
		case m.Problem == "":
			j.add(Differs, m.Path, "used in part: %s", m.Ignored)
		case len(lost) > 0:
			j.add(Blocks, m.Path, "no pod: %s: Sextant would end what runs and is in no other manifest, %s: mend this one, or remove it first",
				m.Problem, strings.Join(lost, ", "))
		default:
			j.add(Differs, m.Path, "no pod: %s", m.Problem)
		}
	}
}

func (j *judge) pods(f *Facts) {
	for _, name := range f.FlexVolume {
		j.add(Differs, "FlexVolume plugin "+name, "is not run: pods with its volumes do not start; use a CSI driver")
	}
	ill := 0
	for _, p := range f.Pods {
		for _, v := range p.Volumes {
			j.add(Blocks, "pod "+p.Name, "will not start again: %s", v)
		}
		if len(p.Volumes) > 0 {
			ill++
		}
	}
	if len(f.Pods) > 0 {
		j.add(OK, "pods", "%d of %d have all they need", len(f.Pods)-ill, len(f.Pods))
	}
}

// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// The chains of the CNI portmap plugin in the nat table: one per container, and
// three that all containers of the machine share.
const (
	containerChain = "CNI-DN-"
	dnatChain      = "CNI-HOSTPORT-DNAT"
)

var sharedChains = []string{dnatChain, "CNI-HOSTPORT-SETMARK", "CNI-HOSTPORT-MASQ"}

// hostPortCleanup turns the rules of the nat table (iptables -S) into the
// iptables arguments that remove what belongs to one CNI network, and the shared
// chains if no container of any network uses them any more.
func hostPortCleanup(rules []string, network string) [][]string {
	var cmds [][]string
	ours, foreign := map[string]bool{}, false
	for _, r := range rules {
		f := splitRule(r)
		if len(f) < 2 || f[0] != "-A" || f[1] != dnatChain {
			continue
		}
		target := after(f, "-j")
		if !strings.HasPrefix(target, containerChain) {
			continue
		}
		// The comment reads: dnat name: "NETWORK" id: "CONTAINER".
		if !strings.Contains(after(f, "--comment"), `name: "`+network+`"`) {
			foreign = true
			continue
		}
		ours[target] = true
		cmds = append(cmds, append([]string{"-D"}, f[1:]...))
	}
	for _, r := range rules {
		if f := splitRule(r); len(f) == 2 && f[0] == "-N" && ours[f[1]] {
			cmds = append(cmds, []string{"-F", f[1]}, []string{"-X", f[1]})
		}
	}
	if foreign {
		return cmds
	}
	shared := map[string]bool{}
	for _, r := range rules {
		f := splitRule(r)
		if len(f) == 2 && f[0] == "-N" {
			for _, c := range sharedChains {
				shared[c] = shared[c] || f[1] == c
			}
		}
	}
	for _, r := range rules {
		if f := splitRule(r); len(f) > 2 && f[0] == "-A" && !ours[f[1]] && shared[after(f, "-j")] {
			cmds = append(cmds, append([]string{"-D"}, f[1:]...))
		}
	}
	for _, verb := range []string{"-F", "-X"} {
		for _, c := range sharedChains {
			if shared[c] {
				cmds = append(cmds, []string{verb, c})
			}
		}
	}
	return cmds
}

// splitRule splits a rule as iptables -S prints it: words and double-quoted
// strings with backslash escapes.
func splitRule(rule string) []string {
	var fields []string
	var b strings.Builder
	inQuotes, escaped, open := false, false, false
	for _, r := range rule {
		switch {
		case escaped:
			b.WriteRune(r)
			escaped = false
		case r == '\\':
			escaped = true
		case r == '"':
			inQuotes, open = !inQuotes, true
		case r == ' ' && !inQuotes:
			if open || b.Len() > 0 {
				fields = append(fields, b.String())
			}
			b.Reset()
			open = false
		default:
			b.WriteRune(r)
		}
	}
	if open || b.Len() > 0 {
		fields = append(fields, b.String())
	}
	return fields
}

// after returns the field behind the named one, or "".
func after(fields []string, name string) string {
	for i, f := range fields[:max(0, len(fields)-1)] {
		if f == name {
			return fields[i+1]
		}
	}
	return ""
}

// removeHostPortRules deletes the host port rules of a network for both address
// families. Without iptables there are none.
func removeHostPortRules(ctx context.Context, network string) error {
	var errs []error
	for _, tool := range []string{"iptables", "ip6tables"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			continue
		}
		out, err := exec.CommandContext(ctx, path, "-w", "-t", "nat", "-S").Output()
		if err != nil {
			continue // the kernel has no nat table of this family, so no rules
		}
		for _, args := range hostPortCleanup(strings.Split(strings.TrimSpace(string(out)), "\n"), network) {
			args = append([]string{"-w", "-t", "nat"}, args...)
			if out, err := exec.CommandContext(ctx, path, args...).CombinedOutput(); err != nil {
				errs = append(errs, fmt.Errorf("%s %s: %w: %s", tool, strings.Join(args, " "), err, strings.TrimSpace(string(out))))
			}
		}
	}
	return errors.Join(errs...)
}

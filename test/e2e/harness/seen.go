// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// record writes what this run, which passed, has seen of the machine, if that is asked for.
func (l *Lab) record() error {
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	name, err := filepath.Rel(filepath.Join(l.Source, "test"), wd)
	if err != nil {
		return err
	}
	if os.Getenv(bootedEnv) == "tests" {
		if out, err := exec.Command("systemctl", "--version").Output(); err == nil {
			if words := strings.Fields(string(out)); len(words) > 1 {
				l.seen.Add("systemd " + words[1])
			}
		}
	}
	var chosen []string
	for _, f := range []string{"run", "skip", "short"} {
		if set := flag.Lookup("test." + f); set != nil && set.Value.String() != set.DefValue {
			chosen = append(chosen, "-"+f+"="+set.Value.String())
		}
	}
	return l.seen.Write(filepath.ToSlash(name), l.commit, strings.Join(chosen, " "))
}

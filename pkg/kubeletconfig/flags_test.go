// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func registered(t *testing.T) []*pflag.Flag {
	t.Helper()
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	(&Flags{}).AddFlags(fs)
	var out []*pflag.Flag
	fs.VisitAll(func(f *pflag.Flag) { out = append(out, f) })
	return out
}

func TestUnknownFlagsAreErrors(t *testing.T) {
	for _, name := range []string{
		"pod-infra-container-image", "container-runtime", "network-plugin", "register-schedulable",
		"keep-terminated-pod-volumes", "max-podz",
	} {
		_, err := ParseFlags([]string{"--" + name + "=x"})
		if err == nil || !strings.Contains(err.Error(), "unknown flag: --"+name) {
			t.Errorf("--%s: %v", name, err)
		}
	}
}

func TestBadFlagValuesNameTheFlag(t *testing.T) {
	for arg, want := range map[string]string{
		"--max-pods=many":                      "--max-pods",
		"--max-pods=2147483648":                "--max-pods",
		"--sync-frequency=5":                   "--sync-frequency",
		"--address=nowhere":                    `"nowhere" is not an IP address`,
		"--anonymous-auth=perhaps":             "--anonymous-auth",
		"--eviction-hard=memory.available>1Gi": "--eviction-hard",
		"--system-reserved=cpu":                "--system-reserved",
		"--feature-gates=EventedPLEG":          "--feature-gates",
		"--feature-gates=EventedPLEG=7":        "--feature-gates",
		"--register-with-taints=a":             `"a" is not of the form key=value:effect`,
		"--register-with-taints=a=b:":          "--register-with-taints",
		"--register-with-taints=a=b:c:d":       "--register-with-taints",
		"--reserved-memory=x:memory=1Gi":       `"x" is not the number of a NUMA node`,
		"--reserved-memory=memory=1Gi":         "is not of the form numa:type=quantity",
		"--reserved-memory=0:memory":           `"memory" is not of the form type=quantity`,
		"--reserved-memory=0:memory=lots":      `"lots" is not a quantity`,
		"--reserved-memory=0:memory=1e-9999":   "not a reasonable quantity",
		"--log-json-info-buffer-size=1e-9999":  "not a reasonable quantity",
		"--v=-1":                               `"-v, --v"`,
		"--vmodule=a":                          "--vmodule",
		"--application-metrics-count-limit=x":  "--application-metrics-count-limit",
		"--global-housekeeping-interval=x":     "--global-housekeeping-interval",
		"--enable-load-reader=x":               "--enable-load-reader",
		"--version=maybe":                      "--version",
	} {
		_, err := ParseFlags([]string{arg})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s in it", arg, err, want)
		}
	}
	if _, err := ParseFlags([]string{"run"}); err == nil || !strings.Contains(err.Error(), `"run"`) {
		t.Errorf("argument that is no flag: %v", err)
	}
}

func TestFlagValues(t *testing.T) {
	c, _ := setup{config: new("clusterDNS: [9.9.9.9]\nauthorization: {mode: AlwaysAllow}\nauthentication: {webhook: {enabled: false}}\n"), args: []string{
		"--cluster-dns=1.1.1.1,2.2.2.2", "--cluster-dns=3.3.3.3",
		"--eviction-hard=memory.available<5%,nodefs.available<1Gi",
		"--manifest-url-header=a:b,c:d", "--manifest-url-header=a:e",
		"--register-with-taints=a=b:NoSchedule,c:NoExecute",
		"--cpu-cfs-quota-period=50ms", "-v=3", "--address=", "--seccomp-default", "--housekeeping_interval=10s",
		"--maximum-dead-containers=7",
	}}.mustLoad(t)
	k := asJSON(t, c.Kubelet)
	for path, want := range map[string]any{
		"clusterDNS":         []any{"1.1.1.1", "2.2.2.2", "3.3.3.3"},
		"evictionHard":       map[string]any{"memory.available": "5%", "nodefs.available": "1Gi"},
		"staticPodURLHeader": map[string]any{"a": []any{"b", "e"}, "c": []any{"d"}},
		"registerWithTaints": []any{map[string]any{"key": "a", "value": "b", "effect": "NoSchedule"}, map[string]any{"key": "c", "effect": "NoExecute"}},
		"cpuCFSQuotaPeriod":  "50ms",
		"address":            "0.0.0.0",
		"seccompDefault":     true,
	} {
		if d := cmp.Diff(want, k[path]); d != "" {
			t.Errorf("%s (-want +got):\n%s", path, d)
		}
	}
	if c.Kubelet.Logging.Verbosity != 3 || c.Node.MaxDeadContainers != 7 {
		t.Errorf("verbosity %d, dead containers %d", c.Kubelet.Logging.Verbosity, c.Node.MaxDeadContainers)
	}
}

// --seccomp-default only ever turns the default on.
func TestSeccompDefaultFlagDoesNotTurnTheFieldOff(t *testing.T) {
	c, _ := setup{args: withAPI("--seccomp-default=false"), config: new("seccompDefault: true\n")}.mustLoad(t)
	if !*c.Kubelet.SeccompDefault {
		t.Error("seccompDefault is off")
	}
}

func TestReservedMemoryValue(t *testing.T) {
	f, err := ParseFlags([]string{"--reserved-memory=0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=2Gi", "--reserved-memory=2:memory=3Gi"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := f.lookup(t, "reserved-memory"), "0:hugepages-1Gi=2Gi,memory=1Gi;1:memory=2Gi;2:memory=3Gi"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// lookup returns the value of a flag as pflag prints it.
func (f *Flags) lookup(t *testing.T, name string) string {
	t.Helper()
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	target := newTarget(defaultConfiguration(false))
	target.bind(fs)
	for _, s := range f.said {
		if err := fs.Set(s.Name, s.Value); err != nil {
			t.Fatal(err)
		}
	}
	return fs.Lookup(name).Value.String()
}

// Every flag with a field behind it is deprecated in favour of a field that
// exists, except the five that are not.
func TestDeprecationsNameTheField(t *testing.T) {
	current := []string{"fail-cgroupv1", "log-flush-frequency", "provider-id", "seccomp-default", "v", "vmodule"}
	for _, f := range registered(t) {
		row := flagIndex()[f.Name]
		_, known := fieldIndex()[row.field]
		switch {
		case row.field == "":
		case !known:
			t.Errorf("--%s: no field %s", f.Name, row.field)
		case slices.Contains(current, f.Name):
			if f.Deprecated != "" {
				t.Errorf("--%s is deprecated: %s", f.Name, f.Deprecated)
			}
		case !strings.Contains(f.Deprecated, row.field):
			t.Errorf("--%s: deprecation %q does not name %s", f.Name, f.Deprecated, row.field)
		}
		if f.Hidden {
			t.Errorf("--%s is hidden", f.Name)
		}
	}
}

func TestDeprecationIsPrintedAndReturned(t *testing.T) {
	var out bytes.Buffer
	f := &Flags{}
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	fs.SetOutput(&out)
	f.AddFlags(fs)
	if err := fs.Parse([]string{"--max-pods=5", "--minimum-container-ttl-duration=0s", "--max-pods=6"}); err != nil {
		t.Fatal(err)
	}
	if want := "Flag --max-pods has been deprecated, set maxPods in the file given by --config\n"; !strings.Contains(out.String(), want) {
		t.Errorf("printed %q", out.String())
	}
	_, warnings, err := Load(f, Inputs{Files: emptyFS, Hostname: "h"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range warnings {
		if w.Kind == Deprecated {
			got = append(got, string(w.Kind)+" "+w.String())
		}
	}
	want := []string{
		"deprecated --max-pods: is deprecated: set maxPods in the file given by --config",
		"deprecated --minimum-container-ttl-duration: is deprecated: use --eviction-hard or --eviction-soft instead",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("warnings (-want +got):\n%s", d)
	}
}

func TestVersionFlag(t *testing.T) {
	for arg, want := range map[string]string{"--version": "true", "--version=raw": "raw", "--version=false": "", "--max-pods=3": ""} {
		f, err := ParseFlags([]string{arg})
		if err != nil || f.Version() != want {
			t.Errorf("%s: %q, %v; want %q", arg, f.Version(), err, want)
		}
	}
	if (&Flags{}).Version() != "" {
		t.Error("empty flags have a version")
	}
	own := pflag.NewFlagSet("x", pflag.ContinueOnError)
	own.Bool("version", false, "mine")
	(&Flags{}).AddFlags(own)
	if own.Lookup("version").Usage != "mine" {
		t.Error("a program's own --version is replaced")
	}
}

// Loading must not wear the flags out: a reload says the same words again.
func TestLoadIsRepeatable(t *testing.T) {
	f, err := ParseFlags([]string{"--system-reserved=cpu=1", "--system-reserved=pid=10", "--cluster-dns=1.1.1.1", "--cluster-dns=2.2.2.2", "--node-labels=a=b"})
	if err != nil {
		t.Fatal(err)
	}
	var last []byte
	for range 3 {
		c, _, err := Load(f, Inputs{Files: emptyFS, Hostname: "h"})
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if last != nil && !bytes.Equal(last, got) {
			t.Errorf("loads differ:\n%s\n%s", last, got)
		}
		last = got
	}
	if !f.Said("node-labels") || f.Said("max-pods") {
		t.Error("Said does not tell what was said")
	}
}

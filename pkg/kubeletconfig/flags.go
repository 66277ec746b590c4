// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Flags is the kubelet's command line. Register it with [Flags.AddFlags], let pflag
// parse, then give it to [Load] as often as needed: it records the flags in order, so
// that they can be applied again on top of a configuration file.
//
// The zero value is an empty command line.
type Flags struct {
	said []Saying
	// scratch receives values during parsing, to check their syntax.
	scratch *target
}

// target is what flag values are bound to.
type target struct {
	k    *kubeletv1beta1.KubeletConfiguration
	node Node
	raw  rawFlags
}

// rawFlags are flags that need interpretation before they become Node.
type rawFlags struct {
	config, configDir     string
	hostnameOverride      string
	nodeIP, cloudProvider string
	seccompDefault        bool
	version               string
	windowsService        bool
	windowsPriorityClass  string
}

// newTarget returns a target that holds the defaults.
func newTarget(k *kubeletv1beta1.KubeletConfiguration) *target {
	t := &target{k: k, node: defaultNode()}
	t.node.Labels = map[string]string{}
	return t
}

// AddFlags registers every kubelet flag on fs, and makes fs take "_" for "-"
// in names as the kubelet does. --help is left to fs; --version is left out
// when fs has one already.
func (f *Flags) AddFlags(fs *pflag.FlagSet) {
	f.scratch = newTarget(defaultConfiguration(false))
	own := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	f.scratch.bind(own)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	own.VisitAll(func(fl *pflag.Flag) {
		if fl.Name == "version" && fs.Lookup("version") != nil {
			return
		}
		fl.Value = &recorder{Value: fl.Value, name: fl.Name, flags: f}
		if d := flagIndex()[fl.Name].deprecation(); d != "" {
			fl.Deprecated = d
			fl.Hidden = false
		}
		fs.AddFlag(fl)
	})
}

// ParseFlags parses a kubelet's arguments. It prints nothing; deprecations are
// among the warnings of [Load]. An unknown flag is an error, and so is an
// argument that is no flag.
func ParseFlags(args []string) (*Flags, error) {
	f := &Flags{}
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	f.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return nil, fmt.Errorf("kubelet flags: %w", err)
	}
	if rest := fs.Args(); len(rest) > 0 {
		return nil, fmt.Errorf("kubelet flags: unexpected argument %q", rest[0])
	}
	return f, nil
}

// Said reports whether the flag was given.
func (f *Flags) Said(name string) bool {
	return slices.ContainsFunc(f.said, func(s Saying) bool { return s.Name == name })
}

// names returns the flags that were given, each once, in the order of their
// first appearance.
func (f *Flags) names() []string {
	var out []string
	for _, s := range f.said {
		if !slices.Contains(out, s.Name) {
			out = append(out, s.Name)
		}
	}
	return out
}

// last returns the value the flag was given last.
func (f *Flags) last(name string) string {
	value := ""
	for _, s := range f.said {
		if s.Name == name {
			value = s.Value
		}
	}
	return value
}

// Version returns the value of --version: "" when it was not given, "true" or
// "raw" otherwise. Printing and exiting is up to the caller.
func (f *Flags) Version() string {
	if f.scratch == nil {
		return ""
	}
	return f.scratch.raw.version
}

// apply sets all recorded flags again, on t.
func (f *Flags) apply(t *target, origins Origins) []*Problem {
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	t.bind(fs)
	var problems []*Problem
	for _, s := range f.said {
		src := Source{Flag: s.Name}
		if err := fs.Set(s.Name, s.Value); err != nil {
			problems = append(problems, &Problem{Source: src, Err: err})
			continue
		}
		if row := flagIndex()[s.Name]; row.field != "" {
			origins.set(row.field, src)
		} else {
			origins["--"+s.Name] = src
		}
	}
	return problems
}

// recorder is a flag value that remembers what it was set to.
type recorder struct {
	pflag.Value
	name  string
	flags *Flags
}

// Set checks and remembers the value.
func (r *recorder) Set(s string) error {
	if err := r.Value.Set(s); err != nil {
		return err
	}
	r.flags.said = append(r.flags.said, Saying{r.name, s})
	return nil
}

// flagDefaults returns the default of every flag as text.
func flagDefaults() map[string]string {
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	newTarget(defaultConfiguration(false)).bind(fs)
	out := map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) { out[f.Name] = f.DefValue })
	return out
}

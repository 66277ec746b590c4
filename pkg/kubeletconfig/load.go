// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/pkg/file"
)

// Inputs is what [Load] knows of the machine.
type Inputs struct {
	// Files is the file system, rooted at "/".
	Files fs.FS
	// WorkDir is the absolute directory that relative paths start at. They are
	// made absolute because many processes read them. Default "/".
	WorkDir string
	// Hostname names the node unless --hostname-override does.
	Hostname string
}

// Load computes the effective configuration. It reads the files that the flags name at
// each call and changes nothing, so it serves a reload as well as a start.
//
// The error joins one [Problem] for each thing that is wrong. Warnings are
// complete when there is no error, and as complete as possible otherwise.
func Load(flags *Flags, in Inputs) (*Config, []Warning, error) {
	l := &loader{in: in, origins: Origins{}}
	l.in.WorkDir = cmp.Or(l.in.WorkDir, "/")
	c, baseline := l.load(flags)
	if len(l.problems) > 0 {
		return nil, l.warnings, join(l.problems)
	}
	l.problems = append(l.problems, problemsOf(Validate(c), l.origins)...)
	l.warnings = append(l.warnings, deprecations(flags, c)...)
	l.warnings = append(l.warnings, doubts(c)...)
	warnings, refusals := supportOf(flags, c, baseline, l.problems)
	l.warnings = append(l.warnings, warnings...)
	l.warnings = append(l.warnings, missing(c, warnings)...)
	l.problems = append(l.problems, refusals...)
	if len(l.problems) > 0 {
		return nil, l.warnings, join(l.problems)
	}
	return c, l.warnings, nil
}

// loader gathers what goes into one Config.
type loader struct {
	in       Inputs
	origins  Origins
	files    []string
	problems []*Problem
	warnings []Warning
}

// load returns the configuration before validation, and the one without any flag or
// file.
func (l *loader) load(flags *Flags) (c *Config, baseline *kubeletv1beta1.KubeletConfiguration) {
	said := newTarget(defaultConfiguration(false))
	flags.apply(said, Origins{})
	fromFile := said.raw.config != ""
	baseline = defaultConfiguration(fromFile)

	k := defaultConfiguration(false)
	if fromFile {
		k = l.configFile(l.abs(said.raw.config), said.k.FeatureGates)
	}
	if dir := said.raw.configDir; dir != "" && k != nil {
		k = l.configDir(k, l.abs(dir), said.k.FeatureGates)
	}
	if len(l.problems) > 0 {
		return nil, baseline
	}

	fileGates := k.FeatureGates
	t := newTarget(k)
	l.problems = append(l.problems, flags.apply(t, l.origins)...)
	k.FeatureGates = mergeGates(fileGates, k.FeatureGates)
	if t.raw.seccompDefault {
		k.SeccompDefault = new(true)
	}
	for _, p := range kubeletPaths(k) {
		*p = l.absOrEmpty(*p)
	}
	c = &Config{Kubelet: *k, Files: l.files, Flags: slices.Clone(flags.said), Origins: l.origins}
	c.Node = l.node(t)
	return c, baseline
}

// configFile reads the --config file. Paths in it start at its directory.
func (l *loader) configFile(name string, flagGates map[string]bool) *kubeletv1beta1.KubeletConfiguration {
	doc := l.decode(name)
	if doc == nil {
		return nil
	}
	k, err := decodeJSON(doc.json)
	if err != nil {
		l.problems = append(l.problems, &Problem{Source: Source{File: name}, Err: err})
		return nil
	}
	setDefaults(k, mergeGates(k.FeatureGates, flagGates))
	setFileEvictionDefaults(k)
	for _, p := range kubeletPaths(k) {
		if *p != "" && !path.IsAbs(*p) {
			*p = path.Join(path.Dir(name), *p)
		}
	}
	return k
}

// configDir merges the drop-ins below dir into k.
func (l *loader) configDir(k *kubeletv1beta1.KubeletConfiguration, dir string, flagGates map[string]bool) *kubeletv1beta1.KubeletConfiguration {
	names, err := listDropIns(l.in.Files, dir)
	if err != nil {
		l.problems = append(l.problems, &Problem{Source: Source{File: dir}, Field: "--config-dir", Err: file.Cause(err)})
		return nil
	}
	var patches [][]byte
	for _, name := range names {
		if doc := l.decode(name); doc != nil {
			patches = append(patches, doc.json)
		}
	}
	// With no patch at all this still encodes and decodes, as the kubelet does.
	k, err = mergeDropIns(k, patches)
	if err != nil {
		l.problems = append(l.problems, &Problem{Source: Source{File: dir}, Err: err})
		return nil
	}
	setDefaults(k, mergeGates(k.FeatureGates, flagGates))
	return k
}

// decode reads and decodes one file and notes what it sets.
func (l *loader) decode(name string) *document {
	data, err := readFile(l.in.Files, name)
	if err != nil {
		l.problems = append(l.problems, &Problem{Source: Source{File: name}, Err: err})
		return nil
	}
	doc, problems := decodeFile(name, data)
	if len(problems) > 0 {
		l.problems = append(l.problems, problems...)
		return nil
	}
	l.warnings = append(l.warnings, doc.ignored...)
	l.files = append(l.files, name)
	l.origins.addFile(name, doc)
	return doc
}

// abs makes a path absolute from the working directory.
func (l *loader) abs(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(l.in.WorkDir, p)
}

// absOrEmpty is abs, but leaves absolute paths as written and "" empty.
func (l *loader) absOrEmpty(p string) string {
	if p == "" || path.IsAbs(p) {
		return p
	}
	return path.Join(l.in.WorkDir, p)
}

// kubeletPaths are the fields that hold paths of files and directories.
func kubeletPaths(k *kubeletv1beta1.KubeletConfiguration) []*string {
	return []*string{
		&k.StaticPodPath, &k.Authentication.X509.ClientCAFile, &k.TLSCertFile, &k.TLSPrivateKeyFile,
		k.ResolverConfig, &k.VolumePluginDir, &k.PodLogsDir,
	}
}

// mergeGates lays over on base.
func mergeGates(base, over map[string]bool) map[string]bool {
	if len(base) == 0 && len(over) == 0 {
		return base
	}
	out := make(map[string]bool, len(base)+len(over))
	maps.Copy(out, base)
	maps.Copy(out, over)
	return out
}

// flagProblem is a problem of a flag that has no field.
func flagProblem(flag, format string, args ...any) *Problem {
	return &Problem{Source: Source{Flag: flag}, Field: "--" + flag, Detail: fmt.Sprintf(format, args...)}
}

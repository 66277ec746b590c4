// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/test/fuzzing"
)

const (
	tooLong = "longer than 1048576 bytes"
	tooMuch = "variables, command and arguments of a container hold more than 8388608 bytes together"
)

// growing is n variables, each the one before, ten times.
func growing(n int) []v1.EnvVar {
	vars := []v1.EnvVar{{Name: "V0", Value: "0123456789"}}
	for i := 1; i < n; i++ {
		vars = append(vars, v1.EnvVar{Name: fmt.Sprint("V", i), Value: strings.Repeat(fmt.Sprintf("$(V%d)", i-1), 10)})
	}
	return vars
}

func repeated(n int, value string) []v1.EnvVar {
	var vars []v1.EnvVar
	for i := range n {
		vars = append(vars, v1.EnvVar{Name: fmt.Sprint("V", i), Value: value})
	}
	return vars
}

// TestLimits: whatever a pod's owner writes, the variables and arguments of a container
// take some megabytes, and the error names what exceeds the limit.
func TestLimits(t *testing.T) {
	mebi := strings.Repeat("x", MaxValue)
	o := &objects{configMaps: map[string]map[string]string{"ns/big": {"B": mebi, "A": "1"}}, secrets: map[string]map[string]string{"ns/big": {"B": mebi}}}
	var maps, same []v1.EnvFromSource
	for i := range 9 {
		ref := v1.LocalObjectReference{Name: "big"}
		maps = append(maps, v1.EnvFromSource{Prefix: fmt.Sprint("P", i, "_"), ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref}})
		same = append(same, v1.EnvFromSource{SecretRef: &v1.SecretEnvSource{LocalObjectReference: ref}})
	}
	var keys []v1.EnvVar
	for i := range 9 {
		keys = append(keys, v1.EnvVar{Name: fmt.Sprint("F", i), ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: fmt.Sprint(i), Key: "K"}}})
	}
	big := files{}
	for i := range 9 {
		big[fmt.Sprint("v/", i)] = "K='" + mebi[10:] + "'"
	}
	for _, tt := range []struct {
		name      string
		container v1.Container
		want      string
	}{
		{"grows with each variable", v1.Container{Env: growing(10)}, `environment variable "V6": ` + tooLong},
		{"a long name", v1.Container{Env: []v1.EnvVar{{Name: "X", Value: mebi}, {Name: strings.Repeat("n", 1000), Value: "$(X)$(X)"}}}, `environment variable "` + strings.Repeat("n", 256) + `... (1000 bytes)": ` + tooLong},
		{"the longest that are allowed", v1.Container{Env: append([]v1.EnvVar{{Name: "X", Value: mebi}}, repeated(6, "$(X)")...)}, ""},
		{"too many", v1.Container{Env: append([]v1.EnvVar{{Name: "X", Value: mebi}}, repeated(9, "$(X)")...)}, `environment variable "V6": ` + tooMuch},
		{"one again and again", v1.Container{Env: append(repeated(1, mebi), v1.EnvVar{Name: "X", Value: "$(V0)"}, v1.EnvVar{Name: "X", Value: "$(V0)"},
			v1.EnvVar{Name: "X", Value: "$(V0)"}, v1.EnvVar{Name: "X", Value: "$(V0)"}, v1.EnvVar{Name: "X", Value: "$(V0)"}, v1.EnvVar{Name: "X", Value: "$(V0)"},
			v1.EnvVar{Name: "X", Value: "$(V0)"}, v1.EnvVar{Name: "X", Value: "$(V0)"})}, `environment variable "X": ` + tooMuch},
		{"many objects", v1.Container{EnvFrom: maps}, `environment variable "P7_B": ` + tooMuch},
		{"one object again and again", v1.Container{EnvFrom: same}, ""},
		{"many files", v1.Container{Env: keys}, `environment variable "F8": ` + tooMuch},
		{"a command", v1.Container{Env: repeated(1, mebi), Command: []string{"x", "$(V0)$(V0)"}}, "command[1]: " + tooLong},
		{"arguments", v1.Container{Env: repeated(1, mebi), Command: []string{"$(V0)", "$(V0)", "$(V0)"}, Args: []string{"$(V0)", "$(V0)", "$(V0)", "$(V0)"}}, "args[3]: " + tooMuch},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fuzzing.Allocates(t, 48<<20, func() {
				vars, err := Build(Input{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{EnableServiceLinks: ptr.To(false)}},
					Container: &tt.container, Objects: o, Files: big})
				if err == nil {
					_, _, err = CommandLine(tt.container.Command, tt.container.Args, vars)
				}
				if got := fmt.Sprint(err); (err != nil || tt.want != "") && got != tt.want {
					t.Errorf("error %.300s, want %s", got, tt.want)
				}
			})
		})
	}
	fuzzing.Allocates(t, 48<<20, func() {
		_, err := ProbeCommand(&v1.ExecAction{Command: []string{"sh", "$(V0)$(V0)"}}, &v1.Container{Env: repeated(1, mebi)})
		if err == nil || err.Error() != "command[1]: "+tooLong {
			t.Errorf("probe: %.300s", fmt.Sprint(err))
		}
	})
}

// TestTakesTimeInProportion has inputs of a megabyte for which a search that begins again
// and again takes minutes.
func TestTakesTimeInProportion(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	for name, text := range map[string]string{
		"open references":   strings.Repeat("$(", 1<<20),
		"nested references": strings.Repeat("$(", 1<<20) + ")",
		"dollars":           strings.Repeat("$", 1<<20),
		"references":        strings.Repeat("$(A)", 1<<19),
	} {
		fuzzing.Spends(t, 2*time.Second, func() {
			if got, err := Expand(text, 4<<20, none); len(got) < len(text)/2 || err != nil {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
			}
		})
	}
	for name, text := range map[string]string{
		"an open quote":  "K='" + strings.Repeat("\n", 1<<20),
		"short lines":    strings.Repeat("A=''\n", 1<<18),
		"long values":    strings.Repeat("A='\n\n\n\n\n'\n", 1<<17),
		"carriage":       "K='" + strings.Repeat("\r\n", 1<<19),
		"open, in a row": strings.Repeat("A= '\n", 1<<18),
	} {
		fuzzing.Spends(t, 2*time.Second, func() {
			if values, _ := FileValues([]byte(text), map[string]bool{"L": true}); len(values) > 0 {
				t.Errorf("%s: %q", name, values)
			}
		})
	}
}

// TestFilesAreReadOnce: a file to which a thousand variables refer is not read a thousand
// times.
func TestFilesAreReadOnce(t *testing.T) {
	c := v1.Container{}
	for i := range 1000 {
		c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprint("V", i), ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: "f", Key: fmt.Sprint("K", i)}}})
	}
	var content strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&content, "K%d='%d'\n", i, i)
	}
	read := reads{files: files{"v/f": content.String() + "broken"}}
	vars, err := Build(Input{Pod: &v1.Pod{}, Container: &c, Files: &read})
	if err != nil || len(vars) != 1000 || vars[1] != (Var{"V1", "1"}) || read.count != 1 {
		t.Errorf("%d variables, %d reads, %v", len(vars), read.count, err)
	}
}

// reads counts how often files are read.
type reads struct {
	files
	count int
}

func (r *reads) EnvFile(volume, path string) ([]byte, error) {
	r.count++
	return r.files.EnvFile(volume, path)
}

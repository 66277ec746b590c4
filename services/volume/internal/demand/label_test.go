// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"errors"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"
)

func TestLabels(t *testing.T) {
	const (
		level  = "{seLinuxOptions: {level: s1}}"
		mounts = "volumeMounts: [{name: data, mountPath: /data}]"
	)
	for name, c := range map[string]struct {
		spec     string
		shared   bool // more than one pod may have it
		all      bool // SELinuxMount is on
		cannot   bool // the driver cannot
		want     string
		wantFail string
	}{
		"the pod's":                {spec: "{securityContext: " + level + ", containers: [{name: a, " + mounts + "}, {name: b}]}", want: "s1"},
		"a container's":            {spec: "{securityContext: " + level + ", containers: [{name: a, securityContext: {seLinuxOptions: {level: s2}}, " + mounts + "}, {name: b}]}", want: "s2"},
		"no label":                 {spec: "{containers: [{name: a, " + mounts + "}]}"},
		"nobody mounts it":         {spec: "{securityContext: " + level + ", containers: [{name: a}]}"},
		"the driver cannot":        {spec: "{securityContext: " + level + ", containers: [{name: a, " + mounts + "}]}", cannot: true},
		"shared":                   {spec: "{securityContext: " + level + ", containers: [{name: a, " + mounts + "}]}", shared: true},
		"shared, the gate is on":   {spec: "{securityContext: " + level + ", containers: [{name: a, " + mounts + "}]}", shared: true, all: true, want: "s1"},
		"the pod wants relabeling": {spec: "{securityContext: {seLinuxOptions: {level: s1}, seLinuxChangePolicy: Recursive}, containers: [{name: a, " + mounts + "}]}"},
		"privileged":               {spec: "{securityContext: " + level + ", containers: [{name: a, securityContext: {privileged: true}, " + mounts + "}]}"},
		"two labels": {
			spec:     "{securityContext: " + level + ", initContainers: [{name: i, securityContext: {seLinuxOptions: {level: s2}}, " + mounts + "}], containers: [{name: a, " + mounts + "}]}",
			wantFail: `volume data is mounted by containers with different SELinux labels: ["s2" "s1"]`,
		},
		"an ephemeral container is not asked": {spec: "{securityContext: " + level + ", containers: [{name: a, " + mounts + "}], ephemeralContainers: [{name: e, securityContext: {seLinuxOptions: {level: s2}}, " + mounts + "}]}", want: "s1"},
		"no such level":                       {spec: "{securityContext: {seLinuxOptions: {level: bad}}, containers: [{name: a, " + mounts + "}]}", wantFail: "SELinux label of container a: no such level"},
	} {
		t.Run(name, func(t *testing.T) {
			p := subject(nil)
			if err := yaml.UnmarshalStrict([]byte(c.spec), &p.Spec); err != nil {
				t.Fatal(err)
			}
			can := !c.cannot
			g := &given{all: c.all, driver: driver(func(s *storagev1.CSIDriverSpec) {
				s.SELinuxMount = &can
				s.VolumeLifecycleModes = append(s.VolumeLifecycleModes, storagev1.VolumeLifecycleEphemeral)
			})}
			src := source()
			if !c.shared {
				src.Volume.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
			}
			judge := func(what string, a *Asked, err error) {
				t.Helper()
				got := ""
				if a != nil {
					got = a.Label
				}
				failed := ""
				if err != nil {
					failed = fmt.Sprint(err)
				}
				if got != c.want || failed != c.wantFail {
					t.Errorf("%s: %q, %q; want %q, %q", what, got, failed, c.want, c.wantFail)
				}
			}
			a, err := Persistent(p, &v1.Volume{Name: "data"}, src, nil, false, g)
			judge("persistent", a, err)
			if c.shared {
				a, err = Inline(p, &v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}}, false, g)
				judge("inline", a, err)
			}
		})
	}
}

// ungated is given by a node that does not know its configuration yet.
type ungated struct{ *given }

var errNotYet = errors.New("not yet")

func (ungated) Gate(string) (bool, error) { return false, errNotYet }

// TestLabelByAGateThatIsNotKnown: a volume is not mounted without a label that it may be to
// have.
func TestLabelByAGateThatIsNotKnown(t *testing.T) {
	p, v := subject(nil), &v1.Volume{Name: "data"}
	if label, err := Label(p, v, false, ungated{&given{}}); !errors.Is(err, errNotYet) {
		t.Errorf("label %q, %v", label, err)
	}
	if _, err := Label(p, v, true, ungated{&given{}}); err != nil {
		t.Errorf("of one pod alone: %v", err)
	}
}

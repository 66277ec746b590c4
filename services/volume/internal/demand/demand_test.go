// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/services/volume/internal/claim"
)

// given answers lookups.
type given struct {
	driver     *storagev1.CSIDriver
	secrets    map[string]string // "namespace/name" has this password
	attachment *storagev1.VolumeAttachment
	node       *v1.Node
	tokens     int
	all        bool // SELinuxMount is on
}

func (g *given) Driver(string) (*storagev1.CSIDriver, error) { return g.driver, nil }
func (g *given) NodeName() (string, error)                   { return "n1", nil }
func (g *given) Gate(name string) (bool, error)              { return name == "SELinuxMount" && g.all, nil }
func (g *given) Node() (*v1.Node, error)                     { return g.node, nil }

// FileLabel is the level; this node has no level "bad".
func (g *given) FileLabel(o *v1.SELinuxOptions) (string, error) {
	switch {
	case o == nil:
		return "", nil
	case o.Level == "bad":
		return "", errors.New("no such level")
	}
	return o.Level, nil
}

func (g *given) Secret(namespace, name string) (*v1.Secret, error) {
	password, ok := g.secrets[namespace+"/"+name]
	if !ok {
		return nil, errors.New("not found")
	}
	return &v1.Secret{Data: map[string][]byte{"password": []byte(password)}}, nil
}

func (g *given) Attachment(string) (*storagev1.VolumeAttachment, error) {
	if g.attachment == nil {
		return nil, errors.New("not found")
	}
	return g.attachment, nil
}

func (g *given) DriverToken(_ *v1.Pod, audience string, life time.Duration) (string, time.Time, error) {
	g.tokens++
	return "token for " + audience, time.Unix(0, 0).Add(life), nil
}

func subject(group *int64) *v1.Pod {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = "p", "ns", "u"
	p.Spec.ServiceAccountName = "app"
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: group}
	return p
}

func source() *claim.Source {
	return &claim.Source{Claim: &v1.PersistentVolumeClaim{}, Volume: &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{
		AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h", FSType: "ext4"}},
	}}}
}

func driver(edit func(*storagev1.CSIDriverSpec)) *storagev1.CSIDriver {
	d := &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}}}
	edit(&d.Spec)
	return d
}

func TestWhoGivesAVolumeToItsGroup(t *testing.T) {
	policy := func(p storagev1.FSGroupPolicy) *storagev1.CSIDriver {
		return driver(func(s *storagev1.CSIDriverSpec) { s.FSGroupPolicy = &p })
	}
	group := int64(7)
	for name, c := range map[string]struct {
		driver *storagev1.CSIDriver
		edit   func(*claim.Source)
		want   bool
	}{
		"no driver object":          {nil, func(*claim.Source) {}, true},
		"default":                   {policy(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy), func(*claim.Source) {}, true},
		"without a type":            {nil, func(s *claim.Source) { s.Volume.Spec.CSI.FSType = "" }, false},
		"shared":                    {nil, func(s *claim.Source) { s.Volume.Spec.AccessModes[0] = v1.ReadWriteMany }, false},
		"one pod":                   {nil, func(s *claim.Source) { s.Volume.Spec.AccessModes[0] = v1.ReadWriteOncePod }, true},
		"none":                      {policy(storagev1.NoneFSGroupPolicy), func(*claim.Source) {}, false},
		"always, shared, no type":   {policy(storagev1.FileFSGroupPolicy), func(s *claim.Source) { s.Volume.Spec.AccessModes[0] = v1.ReadWriteMany; s.Volume.Spec.CSI.FSType = "" }, true},
		"always, but read-only":     {policy(storagev1.FileFSGroupPolicy), func(s *claim.Source) { s.ReadOnly = true }, false},
		"a device is given to none": {nil, func(s *claim.Source) { s.Block = true }, false},
	} {
		src := source()
		c.edit(src)
		a, err := Persistent(subject(&group), &v1.Volume{Name: "v"}, src, nil, false, &given{driver: c.driver})
		if err != nil || a.GiveFSGroup != c.want {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
	a, err := Persistent(subject(nil), &v1.Volume{Name: "v"}, source(), nil, false, &given{})
	if err != nil || a.GiveFSGroup || a.FSGroup != nil {
		t.Errorf("without a group: %v, %v", a, err)
	}
}

func TestTokens(t *testing.T) {
	yes, ten := true, int64(600)
	for name, inSecrets := range map[string]*bool{"attributes": nil, "secrets": &yes} {
		g := &given{secrets: map[string]string{"s/publish": "pw"}, driver: driver(func(s *storagev1.CSIDriverSpec) {
			s.TokenRequests = []storagev1.TokenRequest{{Audience: "a", ExpirationSeconds: &ten}, {}}
			s.ServiceAccountTokenInSecrets, s.RequiresRepublish = inSecrets, &yes
		})}
		src := source()
		src.Volume.Spec.CSI.NodePublishSecretRef = &v1.SecretReference{Namespace: "s", Name: "publish"}
		a, err := Persistent(subject(nil), &v1.Volume{Name: "v"}, src, nil, true, g)
		if err != nil {
			t.Fatal(err)
		}
		const key = "csi.storage.k8s.io/serviceAccount.tokens"
		const want = `{"":{"token":"token for ","expirationTimestamp":"1970-01-01T01:00:00Z"},"a":{"token":"token for a","expirationTimestamp":"1970-01-01T00:10:00Z"}}`
		where, not := a.PublishAttributes, a.PublishSecrets
		if inSecrets != nil {
			where, not = not, where
		}
		if where[key] != want || not[key] != "" || a.PublishSecrets["password"] != "pw" || !a.Republish || a.Again == 0 {
			t.Errorf("in %s: %+v", name, a)
		}
	}
	// What is published, once and for all, needs no token.
	g := &given{driver: driver(func(s *storagev1.CSIDriverSpec) { s.TokenRequests = []storagev1.TokenRequest{{}} })}
	if _, err := Persistent(subject(nil), &v1.Volume{Name: "v"}, source(), nil, true, g); err != nil || g.tokens != 0 {
		t.Errorf("%d tokens, %v", g.tokens, err)
	}
}

func TestWhatADriverDoesNotDo(t *testing.T) {
	inline := &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}}
	for want, d := range map[string]*storagev1.CSIDriver{
		`volume mode "Ephemeral" not supported by driver d (no CSIDriver object)`:          nil,
		`volume mode "Ephemeral" not supported by driver d (only supports ["Persistent"])`: driver(func(*storagev1.CSIDriverSpec) {}),
	} {
		if _, err := Inline(subject(nil), inline, false, &given{driver: d}); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	only := driver(func(s *storagev1.CSIDriverSpec) {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
	})
	const want = `volume mode "Persistent" not supported by driver d (only supports ["Ephemeral"])`
	if _, err := Persistent(subject(nil), &v1.Volume{}, source(), nil, false, &given{driver: only}); err == nil || err.Error() != want {
		t.Errorf("error %v", err)
	}
}

func TestAMissingSecret(t *testing.T) {
	src := source()
	src.Volume.Spec.CSI.NodeStageSecretRef = &v1.SecretReference{Namespace: "s", Name: "stage"}
	_, err := Persistent(subject(nil), &v1.Volume{Name: "v"}, src, nil, false, &given{})
	if err == nil || err.Error() != "fetching secret s/stage failed: not found" {
		t.Errorf("error %v", err)
	}
}

// nameless is what is given while the configuration is not known, and with it the node's name.
type nameless struct{ given }

func (nameless) NodeName() (string, error) { return "", errNotYet }

// TestNothingIsMadeForANodeWithoutAName: what is attached to it, and what is written beside a
// volume for whoever comes next, has the node's name in it.
func TestNothingIsMadeForANodeWithoutAName(t *testing.T) {
	attached := &v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{"n"}, VolumesAttached: []v1.AttachedVolume{{Name: "n"}}}}
	g := &nameless{given{
		driver: driver(func(s *storagev1.CSIDriverSpec) {
			s.VolumeLifecycleModes = append(s.VolumeLifecycleModes, storagev1.VolumeLifecycleEphemeral)
		}),
		node:       attached,
		attachment: &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{Attached: true}},
	}}
	inline := &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}}
	_, attachedErr := Attached("n", source(), g)
	_, persistentErr := Persistent(subject(nil), &v1.Volume{Name: "v"}, source(), nil, false, g)
	_, inlineErr := Inline(subject(nil), inline, false, g)
	for what, err := range map[string]error{"attached": attachedErr, "persistent": persistentErr, "inline": inlineErr} {
		if !errors.Is(err, errNotYet) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestGrowth(t *testing.T) {
	for _, c := range []struct {
		pv, claim string
		want      int64
	}{{"2Ki", "1Ki", 2048}, {"1Ki", "1Ki", 0}, {"2Ki", "", 0}} {
		src := source()
		src.Volume.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse(c.pv)}
		if c.claim != "" {
			src.Claim.Status.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse(c.claim)}
		}
		a, err := Persistent(subject(nil), &v1.Volume{Name: "v"}, src, nil, true, &given{})
		if err != nil || a.Size != c.want {
			t.Errorf("%+v: %v, %v", c, a, err)
		}
	}
}

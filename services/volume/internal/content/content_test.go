// SPDX-License-Identifier: Apache-2.0

package content_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/services/volume/internal/content"
)

var update = flag.Bool("update", false, "write what is found as what is wanted")

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// objects answers from a story's sections.
type objects struct {
	configMaps map[string]*v1.ConfigMap
	secrets    map[string]*v1.Secret
	failures   map[string]error
	node       v1.ResourceList
	bundles    map[string]string // by name or signer
	gates      string
}

func (o objects) Gate(name string) (bool, error) { return strings.Contains(o.gates, name), nil }

func (o objects) Certificate(p *v1.Pod, volume string, source int, spec *v1.PodCertificateProjection) (key, chain []byte, refresh time.Time, err error) {
	if err, ok := o.failures["Certificate"]; ok {
		return nil, nil, time.Time{}, err
	}
	what := fmt.Sprintf("%s of %s/%s/%d\n", spec.KeyType, p.Name, volume, source)
	return []byte("key " + what), []byte("chain " + what), now.Add(time.Hour), nil
}

func (o objects) TrustBundle(s *v1.ClusterTrustBundleProjection) (string, error) {
	name := ""
	for _, n := range []*string{s.Name, s.SignerName} {
		if n != nil {
			name = *n
		}
	}
	if text, ok := o.bundles[name]; ok {
		return text, nil
	}
	return "", o.fail("ClusterTrustBundle", "", name)
}

func (o objects) fail(kind, namespace, name string) error {
	key := kind + "/" + namespace + "/" + name
	if err, ok := o.failures[key]; ok {
		return err
	}
	return content.ErrAbsent
}

func (o objects) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	if c, ok := o.configMaps[namespace+"/"+name]; ok {
		return c, nil
	}
	return nil, o.fail("ConfigMap", namespace, name)
}

func (o objects) Secret(namespace, name string) (*v1.Secret, error) {
	if s, ok := o.secrets[namespace+"/"+name]; ok {
		return s, nil
	}
	return nil, o.fail("Secret", namespace, name)
}

// Token names what was asked for, and lasts as long as the audience says.
func (o objects) Token(p *v1.Pod, spec *v1.ServiceAccountTokenProjection) (string, time.Time, error) {
	if err, ok := o.failures["Token"]; ok {
		return "", time.Time{}, err
	}
	seconds := int64(3600)
	if spec.ExpirationSeconds != nil {
		seconds = *spec.ExpirationSeconds
	}
	return fmt.Sprintf("token for %s of %s", spec.Audience, p.Name), now.Add(time.Duration(seconds) * time.Second), nil
}

func (o objects) Allocatable() (v1.ResourceList, error) {
	if o.node == nil {
		return nil, content.ErrWait
	}
	return o.node, nil
}

// TestStories: a pod, the objects there are, and the files of its first volume.
func TestStories(t *testing.T) {
	stories, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(stories) == 0 {
		t.Fatalf("stories: %v, %v", stories, err)
	}
	for _, path := range stories {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			story, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, want := tell(t, story), section(story, "want")
			if *update {
				setSection(story, "want", got)
				if err := os.WriteFile(path, txtar.Format(story), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func section(story *txtar.Archive, name string) string {
	for _, f := range story.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

func setSection(story *txtar.Archive, name, text string) {
	for i := range story.Files {
		if story.Files[i].Name == name {
			story.Files[i].Data = []byte(text)
		}
	}
}

func tell(t *testing.T, story *txtar.Archive) string {
	t.Helper()
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(section(story, "pod")), p); err != nil {
		t.Fatal(err)
	}
	o := objects{configMaps: map[string]*v1.ConfigMap{}, secrets: map[string]*v1.Secret{}, failures: map[string]error{}, bundles: map[string]string{}}
	for _, f := range story.Files {
		if name, ok := strings.CutPrefix(f.Name, "bundle "); ok {
			o.bundles[name] = string(f.Data)
		}
		switch f.Name {
		case "gates":
			o.gates = string(f.Data)
		case "configmap":
			c := &v1.ConfigMap{}
			if err := yaml.UnmarshalStrict(f.Data, c); err != nil {
				t.Fatal(err)
			}
			o.configMaps[c.Namespace+"/"+c.Name] = c
		case "secret":
			s := &v1.Secret{}
			if err := yaml.UnmarshalStrict(f.Data, s); err != nil {
				t.Fatal(err)
			}
			o.secrets[s.Namespace+"/"+s.Name] = s
		case "node":
			o.node = v1.ResourceList{}
			for line := range strings.Lines(string(f.Data)) {
				name, amount, _ := strings.Cut(strings.TrimSpace(line), " ")
				o.node[v1.ResourceName(name)] = resource.MustParse(amount)
			}
		case "failures":
			for line := range strings.Lines(string(f.Data)) {
				key, text, _ := strings.Cut(strings.TrimSpace(line), " ")
				o.failures[key] = errors.New(text)
				if text == "wait" {
					o.failures[key] = content.ErrWait
				}
			}
		}
	}
	set, err := content.Files(p, &p.Spec.Volumes[0], o)
	if err != nil {
		kind := ""
		if errors.Is(err, content.ErrWait) {
			kind = " (wait)"
		}
		return fmt.Sprintf("error%s: %v\n", kind, err)
	}
	var lines []string
	for path, f := range set.Files {
		line := fmt.Sprintf("%s %04o %q", path, f.Mode, f.Data)
		if f.UID != nil {
			line += fmt.Sprintf(" uid %d", *f.UID)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	if !set.Refresh.IsZero() {
		lines = append(lines, "refresh in "+set.Refresh.Sub(now).String())
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestInMemory(t *testing.T) {
	for source, want := range map[*v1.VolumeSource]bool{
		{Secret: &v1.SecretVolumeSource{}}: true, {Projected: &v1.ProjectedVolumeSource{}}: true,
		{ConfigMap: &v1.ConfigMapVolumeSource{}}: false, {DownwardAPI: &v1.DownwardAPIVolumeSource{}}: true,
	} {
		if content.InMemory(&v1.Volume{VolumeSource: *source}) != want {
			t.Errorf("%v in memory: %v, want %v", source, !want, want)
		}
	}
}

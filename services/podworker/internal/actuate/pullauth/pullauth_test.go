// SPDX-License-Identifier: Apache-2.0

package pullauth

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func config(registries ...string) []byte {
	var auths []string
	for i, r := range registries {
		auths = append(auths, fmt.Sprintf("%q: {\"auth\": %q}", r, base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "u%d:p:%d", i, i))))
	}
	return []byte(`{"auths": {` + strings.Join(auths, ",") + `}}`)
}

func TestLookup(t *testing.T) {
	for _, tc := range []struct {
		name       string
		registries []string
		image      string
		want       string // users, best first
	}{
		{"host", []string{"reg.example"}, "reg.example/app", "u0"},
		{"other host", []string{"reg.example"}, "other.example/app", ""},
		{"scheme and version", []string{"https://reg.example/v2/"}, "reg.example/app", "u0"},
		{"path is a prefix", []string{"reg.example/team"}, "reg.example/team-b/app", "u0"},
		{"other path", []string{"reg.example/team"}, "reg.example/app", ""},
		{"longer first", []string{"reg.example", "reg.example/team"}, "reg.example/team/app", "u1 u0"},
		{"glob", []string{"*.example"}, "reg.example/app", "u0"},
		{"glob matches one label", []string{"*.example"}, "a.b.example/app", ""},
		{"port", []string{"reg.example:5000"}, "reg.example:5000/app", "u0"},
		{"port differs", []string{"reg.example:5000"}, "reg.example/app", ""},
		{"hub", []string{"https://index.docker.io/v1/"}, "docker.io/library/nginx", "u0"},
		{"hub by its other name", []string{"docker.io"}, "docker.io/library/nginx", "u0"},
		{"hub is not the rest", []string{"https://index.docker.io/v1/"}, "reg.example/app", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k, err := ParseConfig(config(tc.registries...))
			if err != nil {
				t.Fatal(err)
			}
			var users []string
			for _, a := range k.Lookup(tc.image) {
				users = append(users, a.Username)
				if want := "p:" + a.Username[1:]; a.Password != want {
					t.Errorf("password %q, want %q", a.Password, want)
				}
			}
			if got := strings.Join(users, " "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRings(t *testing.T) {
	one, two := New(map[string]Auth{"r.example": {Username: "short"}}), New(map[string]Auth{"r.example/team": {Username: "long"}})
	users := func(k Keyring) string {
		var names []string
		for _, a := range k.Lookup("r.example/team/app") {
			names = append(names, a.Username)
		}
		return strings.Join(names, " ")
	}
	if got := users(Merge(one, two)); got != "long short" {
		t.Errorf("merged: %q", got)
	}
	var added Keyring
	added.Add(one)
	added.Add(two)
	if got := users(added); got != "short long" {
		t.Errorf("one behind the other: %q", got)
	}
}

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		pattern, repository string
		want                bool
	}{
		{"*.dkr.example", "1234.dkr.example/app", true},
		{"https://registry.io:8080/path", "registry.io:8080/path/app", true},
		{"*.*.example", "a.example/app", false},
	} {
		if got := Matches(tc.pattern, tc.repository); got != tc.want {
			t.Errorf("%s, %s: %v", tc.pattern, tc.repository, got)
		}
	}
}

func TestFromSecret(t *testing.T) {
	secret := func(kind v1.SecretType, key, value string) *v1.Secret {
		return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pull"}, Type: kind, Data: map[string][]byte{key: []byte(value)}}
	}
	want := []Auth{{Username: "me", Password: "hidden", Secret: &Secret{Namespace: "ns", Name: "pull"}}}
	for _, tc := range []struct {
		name   string
		secret *v1.Secret
		want   []Auth
		err    string
	}{
		{"json", secret(v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, `{"auths":{"r.example":{"username":"me","password":"hidden"}}}`), want, ""},
		{"old", secret(v1.SecretTypeDockercfg, v1.DockerConfigKey, `{"r.example":{"username":"me","password":"hidden"}}`), want, ""},
		{"auth without padding", secret(v1.SecretTypeDockercfg, v1.DockerConfigKey, `{"r.example":{"auth":"`+strings.TrimRight(base64.StdEncoding.EncodeToString([]byte("me:hidden")), "=")+`"}}`), want, ""},
		{"other type", secret(v1.SecretTypeOpaque, v1.DockerConfigKey, `{}`), nil, ""},
		{"no auths", secret(v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, `{}`), nil, ""},
		{"broken", secret(v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, `{"hidden`), nil, "secret ns/pull: docker config: bad JSON"},
		{"wrong shape", secret(v1.SecretTypeDockercfg, v1.DockerConfigKey, `["hidden"]`), nil, "secret ns/pull: docker config: auths: not the shape"},
		{"no base64", secret(v1.SecretTypeDockercfg, v1.DockerConfigKey, `{"r.example":{"auth":"hidden!"}}`), nil, `auths["r.example"].auth: not base64`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k, err := FromSecret(tc.secret)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("error %v, want %q", err, tc.err)
			}
			if err != nil && strings.Contains(err.Error(), "hidden") {
				t.Errorf("the error tells the secret: %v", err)
			}
			if got := k.Lookup("r.example/app"); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

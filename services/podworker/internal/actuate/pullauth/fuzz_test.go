// SPDX-License-Identifier: Apache-2.0

package pullauth

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/test/fuzzing"
)

// FuzzFromSecret: a pull secret, whatever its owner wrote, gives credentials that are in
// it, best first, or an error that holds none of its values.
func FuzzFromSecret(f *testing.F) {
	for _, s := range []string{
		`{"auths":{"reg.example":{"auth":"dTpw"}}}`, `{"auths":{"https://index.docker.io/v1/":{"username":"u","password":"p","email":"e"}}}`, `{"auths":null}`, `{}`, `[]`, ``,
		`{"reg.example":{"auth":"dTpw"}}`, `{"auths":{"*.example/a":{"auth":"dTpw="},"[":{},"%":{},"a b":{"auth":"dTpw"}}}`, `{"auths":{"x":{"auth":"s3cret"}}}`, `{"auths":{"x":{"auth":1}}}`,
	} {
		f.Add([]byte(s), "docker.io/library/nginx")
		f.Add([]byte(s), "reg.example/a/b")
	}
	f.Fuzz(func(t *testing.T, data []byte, image string) {
		for _, s := range []v1.Secret{
			{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: data}},
			{Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigKey: data}},
		} {
			var found []Auth
			var err error
			fuzzing.Allocates(t, 512<<10+200*uint64(len(data))+1000*uint64(len(image)), func() {
				fuzzing.Spends(t, time.Second, func() {
					var k Keyring
					k, err = FromSecret(&s)
					found = Merge(k, Keyring{}).Lookup(image)
				})
			})
			if err != nil {
				if len(found) > 0 || len(err.Error()) > 2048 {
					t.Errorf("%d credentials with an error of %d bytes", len(found), len(err.Error()))
				}
				continue
			}
			var raw any
			if err := json.Unmarshal(data, &raw); len(found) > 0 && err != nil {
				t.Errorf("credentials of %q, %v", data, err)
			}
			for _, a := range found {
				if a.Secret == nil {
					t.Errorf("credentials of nowhere: %+v", a)
				}
			}
		}
	})
}

// TestTakesTimeInProportion: with thousands of entries, and patterns that match slowly.
func TestTakesTimeInProportion(t *testing.T) {
	var many strings.Builder
	for i := range 1 << 13 {
		many.WriteString(`,"` + strings.Repeat("*", i%7) + strings.Repeat("a", i%11) + string(rune('a'+i%26)) + `.example/` + strings.Repeat("p", i%13) + `":{"auth":"dTpw"}`)
	}
	for name, auths := range map[string]string{
		"entries": many.String()[1:],
		"stars":   `"` + strings.Repeat("*a", 1<<16) + `":{"auth":"dTpw"}`,
		"labels":  `"` + strings.Repeat("*.", 1<<16) + `":{"auth":"dTpw"}`,
	} {
		fuzzing.Spends(t, 5*time.Second, func() {
			k, err := ParseConfig([]byte(`{"auths":{` + auths + `}}`))
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			k.Lookup(strings.Repeat("a", 255) + "/p")
			k.Lookup("a.example/p")
		})
	}
}

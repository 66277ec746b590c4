// SPDX-License-Identifier: Apache-2.0

package credprovider

import (
	"fmt"
	"testing"
	"time"

	credentialproviderv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/sextant-node/sextant/services/podworker/internal/actuate/pullauth"
	"github.com/sextant-node/sextant/test/fuzzing"
)

// FuzzParse: of a plugin's answer, credentials or a short error are what is left.
func FuzzParse(f *testing.F) {
	const version = "credentialprovider.kubelet.k8s.io/v1"
	for _, s := range []string{
		`{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Image","auth":{"*.cloud.example":{"username":"u","password":"p"}}}`,
		`{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Global","cacheDuration":"-1s","auth":null}`,
		`{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Registry","cacheDuration":"9999999h","auth":{"[":{},"%":{},"":{}}}`,
		`{"kind":"X","apiVersion":"v1"}`, `{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1"}`, `null`, ``, `[`, `{"auth":{"a":1}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		fuzzing.Allocates(t, 512<<10+200*uint64(len(answer)), func() {
			fuzzing.Spends(t, time.Second, func() {
				resp, err := parse(answer, version)
				if err != nil {
					if resp != nil || len(err.Error()) > 512 {
						t.Errorf("%v with an error of %d bytes", resp, len(err.Error()))
					}
					return
				}
				if resp.APIVersion != version || resp.CacheKeyType == "" {
					t.Errorf("%+v", resp)
				}
				auths := map[string]pullauth.Auth{}
				for registry, a := range resp.Auth {
					auths[registry] = pullauth.Auth{Username: a.Username, Password: a.Password}
				}
				pullauth.New(auths).Lookup("a.cloud.example/app")
			})
		})
	})
}

// TestKeepsAnswersWithinBounds: pods of ever other images fill no memory.
func TestKeepsAnswersWithinBounds(t *testing.T) {
	w := newWorld(t)
	w.plugin("cloud", says(string(credentialproviderv1.ImagePluginCacheKeyType), "robot"))
	cfg := w.configure("cloud")
	if got := w.users(cfg, "a.cloud.example/first:1"); got != "robot/s3" {
		t.Fatalf("got %q", got)
	}
	w.clock.Step(time.Minute)
	for i := range 2 * maxCached {
		w.keep(fmt.Sprint("cloud image", i), pullauth.Keyring{}, time.Hour)
	}
	if n := len(w.cache); n != maxCached {
		t.Errorf("%d answers kept, want %d", n, maxCached)
	}
	if got := w.users(cfg, "a.cloud.example/first:1"); got != "robot/s3" || w.runs("cloud") != 2 {
		t.Errorf("the answer that ended first: %q, %d runs", got, w.runs("cloud"))
	}
	w.clock.Step(2 * time.Hour)
	w.keep("cloud last", pullauth.Keyring{}, time.Hour)
	if n := len(w.cache); n != 1 {
		t.Errorf("%d answers kept, want the last", n)
	}
}

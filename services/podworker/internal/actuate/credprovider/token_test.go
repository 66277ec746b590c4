// SPDX-License-Identifier: Apache-2.0

package credprovider

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sextant-node/sextant/services/podworker/internal/actuate/pullauth"
)

// accounts knows the account "builder" of every namespace. Tokens are counted.
type accounts struct {
	annotations map[string]string
	err         error
	// turn changes with every token that is not the same as the last.
	turn  int
	asked []string
}

func (a *accounts) Account(_ context.Context, namespace, name string) (string, map[string]string, error) {
	if name != "builder" {
		return "", nil, fmt.Errorf("service account %s/%s not found", namespace, name)
	}
	return "uid-" + namespace, a.annotations, a.err
}

func (a *accounts) Token(_ context.Context, who Subject, uid, audience string) (string, error) {
	a.asked = append(a.asked, strings.Join([]string{who.Namespace, who.Pod, who.PodUID, who.Account, uid, audience}, " "))
	return fmt.Sprintf("token-%s-%d", who.Namespace, a.turn), nil
}

// tokens is a configuration with tokenAttributes.
func tokens(attributes string) string {
	return "providers: [{name: cloud, matchImages: ['*.cloud.example'], defaultCacheDuration: 1h, apiVersion: credentialprovider.kubelet.k8s.io/v1, " +
		"env: [{name: SECRET, value: s3}], tokenAttributes: {" + attributes + "}}]\n"
}

// tokenWorld has a plugin that gets tokens.
func tokenWorld(t *testing.T, attributes, answer string) (*world, Config) {
	t.Helper()
	w := newWorld(t)
	w.plugin("cloud", answer)
	cfg := w.configure("cloud")
	w.write("config.yaml", "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n"+tokens(attributes), 0o644)
	w.who = Subject{Namespace: "shop", Pod: "web", PodUID: "u1", Account: "builder"}
	return w, cfg
}

const strict = "serviceAccountTokenAudience: registry, cacheType: Token, requireServiceAccount: true, " +
	"requiredServiceAccountAnnotationKeys: [cloud/role], optionalServiceAccountAnnotationKeys: [cloud/zone, cloud/none]"

func TestPluginsGetTokens(t *testing.T) {
	w, cfg := tokenWorld(t, strict, says("Image", "robot"))
	w.accounts.annotations = map[string]string{"cloud/role": "puller", "cloud/zone": "b", "other": "secret"}
	ring := w.Keyring(t.Context(), cfg, w.who, "a.cloud.example/app:1", "a.cloud.example/app")
	auths := ring.Lookup("a.cloud.example/app")
	if len(auths) != 1 || auths[0].Account == nil || *auths[0].Account != (pullauth.Account{UID: "uid-shop", Namespace: "shop", Name: "builder"}) {
		t.Errorf("got %+v: want whose they are", auths)
	}
	request, err := os.ReadFile(filepath.Join(w.dir, "cloud.request"))
	want := `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1","image":"a.cloud.example/app:1",` +
		`"serviceAccountToken":"token-shop-0","serviceAccountAnnotations":{"cloud/role":"puller","cloud/zone":"b"}}`
	if err != nil || string(request) != want {
		t.Errorf("it was asked %s, %v", request, err)
	}
	if want := "shop web u1 builder uid-shop registry"; strings.Join(w.accounts.asked, ";") != want {
		t.Errorf("tokens asked for: %q", w.accounts.asked)
	}
}

func TestWhoIsAskedFor(t *testing.T) {
	const lenient = "serviceAccountTokenAudience: registry, cacheType: Token, requireServiceAccount: false"
	role := map[string]string{"cloud/role": "puller"}
	for name, tc := range map[string]struct {
		attributes, account string
		annotations         map[string]string
		err                 error
		runs, tokens        int
	}{
		"an account":                        {strict, "builder", role, nil, 1, 1},
		"none where one is required":        {strict, "", role, nil, 0, 0},
		"none where none is required":       {lenient, "", nil, nil, 1, 0},
		"one without a required annotation": {strict, "builder", nil, nil, 0, 0},
		"one that is not there":             {strict, "other", nil, nil, 0, 0},
		"one that cannot be read":           {lenient, "builder", nil, errors.New("no API server"), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, cfg := tokenWorld(t, tc.attributes, says("Image", "robot"))
			w.who.Account, w.accounts.annotations, w.accounts.err = tc.account, tc.annotations, tc.err
			w.users(cfg, "a.cloud.example/app:1")
			if got := w.runs("cloud"); got != tc.runs || len(w.accounts.asked) != tc.tokens {
				t.Errorf("%d runs, %d tokens; want %d, %d", got, len(w.accounts.asked), tc.runs, tc.tokens)
			}
		})
	}
}

func TestAnswersAreKeptByAccountOrToken(t *testing.T) {
	for cache, runs := range map[string]int{"Token": 3, "ServiceAccount": 2} {
		t.Run(cache, func(t *testing.T) {
			w, cfg := tokenWorld(t, "serviceAccountTokenAudience: r, requireServiceAccount: true, cacheType: "+cache, says("Global", "robot"))
			w.users(cfg, "a.cloud.example/x:1")
			w.who.Pod, w.who.PodUID = "other", "u2" // the same account
			w.users(cfg, "b.cloud.example/y:1")
			w.accounts.turn++ // another token
			w.users(cfg, "a.cloud.example/x:1")
			w.who.Namespace = "bank" // another account
			w.users(cfg, "a.cloud.example/x:1")
			if got := w.runs("cloud"); got != runs {
				t.Errorf("%d runs, want %d", got, runs)
			}
		})
	}
}

func TestAnEchoedTokenIsNotKeptForOthers(t *testing.T) {
	echo := strings.Replace(says("Image", "robot"), `"'"$SECRET"'"`, `"token-shop-0"`, 1)
	for cache, want := range map[string]string{"Token": "robot/token-shop-0", "ServiceAccount": ""} {
		w, cfg := tokenWorld(t, "serviceAccountTokenAudience: r, requireServiceAccount: true, cacheType: "+cache, echo)
		if got := w.users(cfg, "a.cloud.example/x:1"); got != want {
			t.Errorf("%s: %q, want %q", cache, got, want)
		}
	}
}

func TestTokensWithTheGateOff(t *testing.T) {
	w, cfg := tokenWorld(t, strict, says("Image", "robot"))
	cfg.Tokens = false
	w.accounts.annotations = map[string]string{"cloud/role": "puller"}
	if got := w.users(cfg, "a.cloud.example/app:1"); got != "" || w.runs("cloud") != 0 {
		t.Errorf("%q, %d runs", got, w.runs("cloud"))
	}
}

func TestAccountOfAPod(t *testing.T) {
	w, cfg := tokenWorld(t, strict, says("Image", "robot"))
	if got := w.Account(t.Context(), cfg, w.who, "a.cloud.example/app"); got != nil {
		t.Errorf("without the annotation: %+v", got)
	}
	w.accounts.annotations = map[string]string{"cloud/role": "puller"}
	if got := w.Account(t.Context(), cfg, w.who, "a.cloud.example/app"); got == nil || got.UID != "uid-shop" {
		t.Errorf("got %+v", got)
	}
	if got := w.Account(t.Context(), cfg, w.who, "docker.io/app"); got != nil {
		t.Errorf("of another registry: %+v", got)
	}
	if w.runs("cloud") != 0 {
		t.Error("the plugin was run")
	}
}

// SPDX-License-Identifier: Apache-2.0

package pullrecord

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/services/podworker/internal/actuate/pullauth"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func auth(secret, password string) pullauth.Auth {
	a := pullauth.Auth{Username: "u", Password: password}
	if secret != "" {
		a.Secret = &pullauth.Secret{UID: secret, Namespace: "ns", Name: secret}
	}
	return a
}

func recordOf(image string, used ...pullauth.Auth) *kubeletv1beta1.ImagePulledRecord {
	var all kubeletv1beta1.ImagePullCredentials
	for _, a := range used {
		all, _ = merge(all, Used(&a))
	}
	return &kubeletv1beta1.ImagePulledRecord{CredentialMapping: map[string]kubeletv1beta1.ImagePullCredentials{image: all}}
}

func TestDecide(t *testing.T) {
	const image = "r.example/app:1"
	private := recordOf("r.example/app", auth("s1", "p1"))
	for _, tc := range []struct {
		name    string
		policy  Policy
		record  *kubeletv1beta1.ImagePulledRecord
		intent  bool
		has     []pullauth.Auth
		pull    bool
		result  string
		learned string
	}{
		{"preloaded", Policy{}, nil, false, nil, false, PolicyAllowed, ""},
		{"never verify", Policy{Name: kubeletv1beta1.NeverVerify}, private, false, nil, false, PolicyAllowed, ""},
		{"preloaded, always verify", Policy{Name: kubeletv1beta1.AlwaysVerify}, nil, false, nil, true, MustAuthenticate, ""},
		{"pull cut off", Policy{}, nil, true, nil, true, MustAuthenticate, ""},
		{"pulled by anybody", Policy{}, recordOf("r.example/app", auth("", "")), false, nil, false, RecordFound, ""},
		{"under another name", Policy{}, recordOf("r.example/other", auth("", "")), false, nil, true, MustAuthenticate, ""},
		{"damaged record", Policy{}, &kubeletv1beta1.ImagePulledRecord{}, false, nil, true, MustAuthenticate, ""},
		{"no credentials", Policy{}, private, false, nil, true, MustAuthenticate, ""},
		{"the node's credentials", Policy{}, private, false, []pullauth.Auth{auth("", "p1")}, true, MustAuthenticate, ""},
		{"the same secret", Policy{}, private, false, []pullauth.Auth{auth("s1", "p1")}, false, RecordFound, ""},
		{"the secret with a new password", Policy{}, private, false, []pullauth.Auth{auth("s1", "p2")}, false, RecordFound, "s1"},
		{"a copy of the secret", Policy{}, private, false, []pullauth.Auth{auth("s2", "p1")}, false, RecordFound, "s2"},
		{"another secret", Policy{}, private, false, []pullauth.Auth{auth("s2", "p2")}, true, MustAuthenticate, ""},
		{"allowlisted", Policy{kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"r.example/app"}}, private, false, nil, false, PolicyAllowed, ""},
		{"allowlisted by its beginning", Policy{kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"r.example/*"}}, private, false, nil, false, PolicyAllowed, ""},
		{"not allowlisted", Policy{kubeletv1beta1.NeverVerifyAllowlistedImages, []string{"r.example/ap", "r.example/app/*"}}, nil, false, nil, true, MustAuthenticate, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Decide(Question{Policy: tc.policy, Image: image, Record: tc.record, Intent: tc.intent, Credentials: tc.has})
			if got.MustPull != tc.pull || got.Result != tc.result || (got.Learned != nil) != (tc.learned != "") {
				t.Fatalf("got %+v", got)
			}
			if got.Learned != nil && got.Learned.Name != tc.learned {
				t.Errorf("learned %+v", got.Learned)
			}
		})
	}
}

func TestName(t *testing.T) {
	const digest = "@sha256:0123456789012345678901234567890123456789012345678901234567890123"
	for image, want := range map[string]string{
		"nginx": "nginx", "nginx:1": "nginx", "r.example:5000/a/b:1" + digest: "r.example:5000/a/b", "a" + digest: "a", "r.example:5000/a": "r.example:5000/a",
	} {
		if got := Name(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

// Records of a kubelet have to stay comparable: SHA-256 of the credentials as
// JSON, empty fields left out.
func TestHash(t *testing.T) {
	got := hash(pullauth.Auth{Username: "user", Password: "pass"})
	if want := "cb54b00fb550d4a17c448149caa29f38f4d5a44fb87c752e43db8160af3a032a"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestStore(t *testing.T) {
	dir := t.TempDir()
	s := NewStore(dir)
	lookup := func(s *Store) (*kubeletv1beta1.ImagePulledRecord, bool) {
		t.Helper()
		record, intent, err := s.Lookup("app:1", "sha256:a")
		if err != nil {
			t.Fatal(err)
		}
		return record, intent
	}
	if record, intent := lookup(s); record != nil || intent {
		t.Errorf("nothing yet: %v, %v", record, intent)
	}
	for range 2 { // two pods at once
		if err := s.Begin("app:1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, intent := lookup(s); !intent {
		t.Error("an intent was forgotten")
	}
	if err := s.Failed("app:1"); err != nil {
		t.Fatal(err)
	}
	// Killed now: the file tells.
	if _, intent := lookup(NewStore(dir)); !intent {
		t.Error("an intent did not survive")
	}
	secret := auth("s1", "p")
	if err := s.Done("app:1", "sha256:a", Used(&secret), now); err != nil {
		t.Fatal(err)
	}
	record, intent := lookup(NewStore(dir))
	if intent || record == nil || record.Kind != "ImagePulledRecord" || record.ImageRef != "sha256:a" {
		t.Fatalf("after the pull: %+v, %v", record, intent)
	}
	if want := Used(&secret); !reflect.DeepEqual(record.CredentialMapping["app"], want) {
		t.Errorf("recorded %+v, want %+v", record.CredentialMapping, want)
	}
	if left, err := os.ReadDir(filepath.Join(dir, pullingDir)); err != nil || len(left) != 0 {
		t.Errorf("intents left: %v, %v", left, err)
	}

	// Once anybody may use it, secrets do not matter.
	if err := s.Learn("app:1", "sha256:a", Used(nil), now); err != nil {
		t.Fatal(err)
	}
	record, _ = lookup(s)
	if c := record.CredentialMapping["app"]; !c.NodePodsAccessible || len(c.KubernetesSecrets) != 0 {
		t.Errorf("recorded %+v", c)
	}

	// A damaged record is one of an image pulled with who knows what.
	if err := os.WriteFile(s.path(pulledDir, "sha256:a"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if record, _ := lookup(s); record == nil || len(record.CredentialMapping) != 0 {
		t.Errorf("damaged: %+v", record)
	}

	later := time.Now().Add(time.Hour)
	if err := s.Prune(map[string]bool{"sha256:a": true}, later); err != nil {
		t.Fatal(err)
	}
	if record, _ := lookup(s); record == nil {
		t.Error("the record of a present image was pruned")
	}
	if err := s.Prune(nil, now); err != nil {
		t.Fatal(err)
	}
	if record, _ := lookup(s); record == nil {
		t.Error("a record newer than the listing was pruned")
	}
	if err := s.Prune(nil, later); err != nil {
		t.Fatal(err)
	}
	if record, _ := lookup(s); record != nil {
		t.Error("the record of an image that is gone was kept")
	}
}

// TestAPullThatIsNotRecorded: the intent of an image that was pulled with credentials that
// are not known stays, through pulls that fail and a kill, until a pull is recorded.
func TestAPullThatIsNotRecorded(t *testing.T) {
	dir, now := t.TempDir(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	inTheWay := filepath.Join(dir, pulledDir)
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := NewStore(dir)
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(s.Begin("app:1"))
	if err := s.Done("app:1", "sha256:a", Used(nil), now); err == nil {
		t.Fatal("recorded all the same")
	}
	must(os.Remove(inTheWay))
	want := func(when string, want bool) {
		t.Helper()
		if _, intent, err := s.Lookup("app:1", "sha256:a"); err != nil || intent != want {
			t.Errorf("%s: intent %v, %v", when, intent, err)
		}
	}
	want("not recorded", true)
	must(s.Begin("app:1"), s.Failed("app:1"))
	want("the next pull failed", true)
	s = NewStore(dir)
	must(s.Begin("app:1"), s.Failed("app:1"))
	want("the next pull after a kill failed", true)
	must(s.Begin("app:1"), s.Done("app:1", "sha256:a", Used(nil), now))
	if intents, records := s.Count(); intents != 0 || records != 1 {
		t.Errorf("%d intents and %d records once one is recorded", intents, records)
	}
	must(s.Begin("app:2"), s.Failed("app:2"))
	if intents, _ := s.Count(); intents != 0 {
		t.Errorf("%d intents after a pull that only failed", intents)
	}
}

func TestServiceAccounts(t *testing.T) {
	mine := pullauth.Account{UID: "u", Namespace: "shop", Name: "builder"}
	used := Used(&pullauth.Auth{Username: "robot", Account: &mine})
	if used.NodePodsAccessible || len(used.KubernetesServiceAccounts) != 1 {
		t.Fatalf("recorded %+v: other pods have no such account", used)
	}
	merged, changed := merge(used, used)
	if changed || len(merged.KubernetesServiceAccounts) != 1 {
		t.Errorf("the same again: %+v, %v", merged, changed)
	}
	record := &kubeletv1beta1.ImagePulledRecord{CredentialMapping: map[string]kubeletv1beta1.ImagePullCredentials{"app": merged}}
	replaced := mine
	replaced.UID = "u2"
	for name, tc := range map[string]struct {
		account *pullauth.Account
		pull    bool
	}{"the same": {&mine, false}, "one of the same name": {&replaced, true}, "none": {nil, true}} {
		got := Decide(Question{Policy: Policy{Name: kubeletv1beta1.AlwaysVerify}, Image: "app:v1", Record: record, Account: tc.account})
		if got.MustPull != tc.pull {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

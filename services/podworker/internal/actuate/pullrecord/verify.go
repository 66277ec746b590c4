// SPDX-License-Identifier: Apache-2.0

// Package pullrecord remembers with which credentials images were pulled, so
// that a pod cannot use an image that lies on the node for another pod's
// credentials (KEP-2535).
//
// MustPull is the pure judgement; Store keeps the kubelet's records in the
// kubelet's files: an intent while an image is pulled, a record of what was used
// afterwards. A kill in between leaves the intent, and the image counts as
// pulled with unknown credentials: every pod has to show its own.
package pullrecord

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/distribution/reference"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/services/podworker/internal/actuate/pullauth"
)

// Policy is imagePullCredentialsVerificationPolicy with its allowlist.
type Policy struct {
	Name kubeletv1beta1.ImagePullCredentialsVerificationPolicy
	// Allowlist holds image names, or with /* at the end beginnings of them.
	Allowlist []string
}

// Question is about an image that is present.
type Question struct {
	Policy Policy
	// Image as the pod names it.
	Image string
	// Record of the image, nil for none; Intent says that a pull of it began
	// and was not recorded.
	Record *kubeletv1beta1.ImagePulledRecord
	Intent bool
	// Credentials the pod has for it.
	Credentials []pullauth.Auth
	// Account is the pod's service account, if plugins are given its tokens for
	// this image.
	Account *pullauth.Account
}

// Answer reports whether an image must be pulled although it is present, for the
// registry to judge the pod's credentials.
type Answer struct {
	MustPull bool
	// Result is the kubelet's word for the reason, a label of its metric.
	Result string
	// Learned is a credential that is as good as a recorded one, though not the
	// same; nil for none. It is worth recording.
	Learned *kubeletv1beta1.ImagePullSecret
}

// Results of a decision.
const (
	PolicyAllowed    = "credentialPolicyAllowed"
	RecordFound      = "credentialRecordFound"
	MustAuthenticate = "mustAuthenticate"
	LookupFailed     = "error"
)

// maxSecrets bounds how many secrets are learned for one image.
const maxSecrets = 100

// Decide answers a question.
func Decide(q Question) Answer {
	if !q.Policy.applies(q.Image, q.Record != nil || q.Intent) {
		return Answer{Result: PolicyAllowed}
	}
	if q.Record == nil {
		return Answer{MustPull: true, Result: MustAuthenticate}
	}
	known, ok := q.Record.CredentialMapping[Name(q.Image)]
	switch {
	case !ok:
		return Answer{MustPull: true, Result: MustAuthenticate}
	case known.NodePodsAccessible:
		return Answer{Result: RecordFound}
	}
	if q.Account != nil && slices.Contains(known.KubernetesServiceAccounts, accountOf(*q.Account)) {
		return Answer{Result: RecordFound}
	}
	for _, auth := range q.Credentials {
		mine, ok := secretOf(auth)
		if !ok {
			continue
		}
		for _, theirs := range known.KubernetesSecrets {
			sameSecret := mine.UID == theirs.UID && mine.Namespace == theirs.Namespace && mine.Name == theirs.Name
			sameContent := theirs.CredentialHash != "" && mine.CredentialHash == theirs.CredentialHash
			if !sameSecret && !sameContent {
				continue
			}
			if (!sameSecret || !sameContent) && len(known.KubernetesSecrets) < maxSecrets {
				return Answer{Result: RecordFound, Learned: &mine}
			}
			return Answer{Result: RecordFound}
		}
	}
	return Answer{MustPull: true, Result: MustAuthenticate}
}

// applies reports whether an image needs proof at all. pulled is whether this node
// pulled it.
func (p Policy) applies(image string, pulled bool) bool {
	switch p.Name {
	case kubeletv1beta1.NeverVerify:
		return false
	case kubeletv1beta1.AlwaysVerify:
		return true
	case kubeletv1beta1.NeverVerifyAllowlistedImages:
		name := Name(image)
		return !slices.ContainsFunc(p.Allowlist, func(pattern string) bool {
			if prefix, ok := strings.CutSuffix(pattern, "/*"); ok {
				return strings.HasPrefix(name, prefix+"/")
			}
			return name == pattern
		})
	}
	return pulled
}

// Name is an image's name without tag and digest, as written.
func Name(image string) string {
	parsed, err := reference.Parse(image)
	if err != nil {
		return image
	}
	if digested, ok := parsed.(reference.Digested); ok {
		image = strings.TrimSuffix(image, "@"+digested.Digest().String())
	}
	if tagged, ok := parsed.(reference.Tagged); ok {
		image = strings.TrimSuffix(image, ":"+tagged.Tag())
	}
	return image
}

// Used is what an image was pulled with, for its record.
func Used(auth *pullauth.Auth) kubeletv1beta1.ImagePullCredentials {
	if auth != nil && auth.Account != nil {
		return kubeletv1beta1.ImagePullCredentials{KubernetesServiceAccounts: []kubeletv1beta1.ImagePullServiceAccount{accountOf(*auth.Account)}}
	}
	if auth != nil {
		if secret, ok := secretOf(*auth); ok {
			return kubeletv1beta1.ImagePullCredentials{KubernetesSecrets: []kubeletv1beta1.ImagePullSecret{secret}}
		}
	}
	return kubeletv1beta1.ImagePullCredentials{NodePodsAccessible: true}
}

func secretOf(auth pullauth.Auth) (kubeletv1beta1.ImagePullSecret, bool) {
	if auth.Secret == nil {
		return kubeletv1beta1.ImagePullSecret{}, false
	}
	return kubeletv1beta1.ImagePullSecret{
		UID: auth.Secret.UID, Namespace: auth.Secret.Namespace, Name: auth.Secret.Name, CredentialHash: hash(auth),
	}, true
}

func accountOf(a pullauth.Account) kubeletv1beta1.ImagePullServiceAccount {
	return kubeletv1beta1.ImagePullServiceAccount{UID: a.UID, Namespace: a.Namespace, Name: a.Name}
}

// hash of credentials as the kubelet takes it.
func hash(auth pullauth.Auth) string {
	raw, err := json.Marshal(struct {
		Username string `json:"username,omitempty"`
		Password string `json:"password,omitempty"`
		Email    string `json:"email,omitempty"`
	}{auth.Username, auth.Password, auth.Email})
	if err != nil {
		panic(err) // three strings always marshal
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// merge adds credentials to those known for an image; changed reports whether that
// made a difference. What every pod may use needs no secrets.
func merge(known, more kubeletv1beta1.ImagePullCredentials) (merged kubeletv1beta1.ImagePullCredentials, changed bool) {
	switch {
	case known.NodePodsAccessible:
		return known, false
	case more.NodePodsAccessible:
		return more, true
	}
	merged = *known.DeepCopy()
	for _, a := range more.KubernetesServiceAccounts {
		if !slices.Contains(merged.KubernetesServiceAccounts, a) {
			merged.KubernetesServiceAccounts, changed = append(merged.KubernetesServiceAccounts, a), true
		}
	}
	for _, s := range more.KubernetesSecrets {
		i := slices.IndexFunc(merged.KubernetesSecrets, func(k kubeletv1beta1.ImagePullSecret) bool {
			return k.UID == s.UID && k.Namespace == s.Namespace && k.Name == s.Name
		})
		switch {
		case i < 0:
			merged.KubernetesSecrets, changed = append(merged.KubernetesSecrets, s), true
		case merged.KubernetesSecrets[i].CredentialHash != s.CredentialHash:
			merged.KubernetesSecrets[i], changed = s, true
		}
	}
	return merged, changed
}

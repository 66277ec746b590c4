// SPDX-License-Identifier: Apache-2.0

// Package pullauth finds the credentials an image may be pulled with among
// docker configurations: those in a pod's imagePullSecrets and the node's own.
//
// It is pure, and matches as the kubelet does: an entry names a registry, or a
// registry and the beginning of a path; host labels may be globs; longer entries
// are tried first.
package pullauth

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/quiet"
)

// Auth is one set of credentials.
type Auth struct {
	Username, Password string
	// Email is of no use to registries; it is part of the credentials' hash.
	Email string
	// Secret the credentials are from, or the service account that a plugin was
	// given a token of; neither for the node's own.
	Secret  *Secret
	Account *Account
}

// Secret names a pull secret.
type Secret struct{ UID, Namespace, Name string }

// Account names a service account.
type Account struct{ UID, Namespace, Name string }

// entry is an Auth with what it is good for: host[/path].
type entry struct {
	location string
	auth     Auth
}

// Keyring holds credentials, in rings of one origin each. The zero value is
// empty.
type Keyring struct{ rings []ring }

// ring is sorted: longer locations first.
type ring []entry

func newRing(entries []entry) Keyring {
	if len(entries) == 0 {
		return Keyring{}
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return strings.Compare(b.location, a.location) })
	return Keyring{rings: []ring{entries}}
}

// Add puts the credentials of o behind those of k.
func (k *Keyring) Add(o Keyring) { k.rings = append(k.rings, o.rings...) }

// Merge makes one ring of several: the secrets of a pod count as one origin.
func Merge(keyrings ...Keyring) Keyring {
	var all []entry
	for _, k := range keyrings {
		for _, r := range k.rings {
			all = append(all, r...)
		}
	}
	return newRing(all)
}

// FromSecret reads a pull secret; one of another type holds none.
func FromSecret(s *v1.Secret) (Keyring, error) {
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		if data, ok := s.Data[v1.DockerConfigJsonKey]; ok && len(data) > 0 {
			return named(s, data, ParseConfig)
		}
	case v1.SecretTypeDockercfg:
		if data, ok := s.Data[v1.DockerConfigKey]; ok && len(data) > 0 {
			return named(s, data, ParseAuths)
		}
	}
	return Keyring{}, nil
}

func named(s *v1.Secret, data []byte, parse func([]byte) (Keyring, error)) (Keyring, error) {
	k, err := parse(data)
	if err != nil {
		return k, fmt.Errorf("secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	for _, r := range k.rings {
		for i := range r {
			r[i].auth.Secret = &Secret{UID: string(s.UID), Namespace: s.Namespace, Name: s.Name}
		}
	}
	return k, nil
}

// ParseConfig reads a docker config.json: {"auths": {…}}.
func ParseConfig(data []byte) (Keyring, error) {
	var config struct {
		Auths json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return Keyring{}, fmt.Errorf("docker config: %w", unquoted(err))
	}
	if len(config.Auths) == 0 {
		return Keyring{}, nil
	}
	return ParseAuths(config.Auths)
}

// ParseAuths reads the old form, a map from registry to entry.
func ParseAuths(data []byte) (Keyring, error) {
	var auths map[string]struct {
		Username, Password, Auth, Email string
	}
	if err := json.Unmarshal(data, &auths); err != nil {
		return Keyring{}, fmt.Errorf("docker config: auths: %w", unquoted(err))
	}
	var entries []entry
	for _, registry := range slices.Sorted(maps.Keys(auths)) { // the same error each time
		a := auths[registry]
		auth := Auth{Username: a.Username, Password: a.Password}
		if a.Auth != "" {
			var err error
			if auth, err = decode(a.Auth); err != nil {
				return Keyring{}, fmt.Errorf("docker config: auths[%q].auth: %w", quiet.Cut(registry, 256), err)
			}
		}
		auth.Email = a.Email
		location, err := locationOf(registry)
		if err != nil {
			continue // no address, so no image can match it
		}
		entries = append(entries, entry{location, auth})
	}
	return newRing(entries), nil
}

// unquoted keeps the values of a secret out of messages.
func unquoted(err error) error {
	if syntax, ok := err.(*json.SyntaxError); ok {
		return fmt.Errorf("bad JSON at byte %d", syntax.Offset)
	}
	return fmt.Errorf("not the shape of a docker config")
}

func decode(auth string) (Auth, error) {
	// Docker pads; some tools do not.
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(auth, "="))
	if err != nil {
		return Auth{}, fmt.Errorf("not base64")
	}
	user, password, ok := strings.Cut(string(raw), ":")
	if !ok {
		return Auth{}, fmt.Errorf("want user:password in base64")
	}
	return Auth{Username: user, Password: strings.Trim(password, "\x00")}, nil
}

// locationOf is host[/path] of a registry's address, without the API version.
func locationOf(registry string) (string, error) {
	if !strings.HasPrefix(registry, "https://") && !strings.HasPrefix(registry, "http://") {
		registry = "https://" + registry
	}
	u, err := url.Parse(registry)
	if err != nil {
		return "", err
	}
	p := u.Path
	for _, version := range []string{"/v1", "/v2"} {
		if p == version || strings.HasPrefix(p, version+"/") {
			p = p[len(version):]
			break
		}
	}
	return u.Host + strings.TrimSuffix(p, "/"), nil
}

// New makes a keyring of credentials by registry address.
func New(auths map[string]Auth) Keyring {
	var entries []entry
	for registry, auth := range auths {
		if location, err := locationOf(registry); err == nil {
			entries = append(entries, entry{location, auth})
		}
	}
	return newRing(entries)
}

// Matches reports whether an address pattern, host labels of which may be globs,
// covers a repository.
func Matches(pattern, repository string) bool {
	location, err := locationOf(pattern)
	return err == nil && matches(location, repository)
}

// defaultRegistry is how credentials of Docker Hub are filed.
const defaultRegistry = "index.docker.io"

// Lookup finds the credentials for a repository (docker.io/library/nginx, for
// example), best first. None means: pull without.
func (k Keyring) Lookup(repository string) []Auth {
	var found []Auth
	for _, r := range k.rings {
		found = append(found, r.lookup(repository)...)
	}
	return found
}

func (r ring) lookup(repository string) []Auth {
	var found []Auth
	for _, e := range r {
		if matches(e.location, repository) {
			found = append(found, e.auth)
		}
	}
	if len(found) > 0 || !ofDefaultRegistry(repository) {
		return found
	}
	for _, e := range r {
		if e.location == defaultRegistry {
			found = append(found, e.auth)
		}
	}
	return found
}

// matches compares label by label; a path of the pattern is a prefix.
func matches(pattern, target string) bool {
	patternHost, patternPath := split(pattern)
	targetHost, targetPath := split(target)
	patternName, patternPort, _ := strings.Cut(patternHost, ":")
	targetName, targetPort, _ := strings.Cut(targetHost, ":")
	if patternPort != targetPort || !strings.HasPrefix(targetPath, patternPath) {
		return false
	}
	patternLabels, targetLabels := strings.Split(patternName, "."), strings.Split(targetName, ".")
	if len(patternLabels) != len(targetLabels) {
		return false
	}
	for i := range patternLabels {
		if ok, err := path.Match(patternLabels[i], targetLabels[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

func split(location string) (host, rest string) {
	host, rest, found := strings.Cut(location, "/")
	if found {
		rest = "/" + rest
	}
	return host, rest
}

func ofDefaultRegistry(repository string) bool {
	first, _, found := strings.Cut(repository, "/")
	switch {
	case first == "":
		return false
	case !found, first == "docker.io", first == defaultRegistry:
		return true
	}
	return !strings.ContainsAny(first, ".:")
}

// SPDX-License-Identifier: Apache-2.0

// Package credprovider asks credential provider plugins for what images may be
// pulled with (KEP-2133): programs of cloud vendors that speak
// credentialprovider.kubelet.k8s.io/v1 on standard input and output.
//
// It owns a cache of their answers, in memory only; after kill -9 they are asked
// again. A plugin that fails, hangs or talks nonsense costs its own credentials
// and nothing else: the image is then tried with the others'.
package credprovider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	kubeletv1 "k8s.io/kubelet/config/v1"
	credentialproviderv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/pkg/keyed"
	"github.com/sextant-node/sextant/pkg/metric"
	"github.com/sextant-node/sextant/pkg/quiet"
	"github.com/sextant-node/sextant/pkg/yamlsize"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/pullauth"
)

// Bounds of one plugin run, of how many there are at a time, and of what is kept of runs. A
// plugin may have an answer kept for each image, and which images there are is for pods to
// say. All pods of a node may come at once, and podworker's memory is that of its plugins too.
const (
	maxRun     = time.Minute
	maxRuns    = 8       // of one plugin at a time
	maxAnswer  = 1 << 20 // bytes
	maxMessage = 1 << 10 // bytes of standard error in an error
	maxCached  = 1000    // answers
)

// maxExpanded bounds a configuration with its aliases written out, in bytes.
const maxExpanded = 10 << 20

// apiVersions are those whose messages are the same as v1's.
var apiVersions = []string{
	"credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v1beta1", "credentialprovider.kubelet.k8s.io/v1alpha1",
}

// Load reads a CredentialProviderConfig: a file, or a folder whose files
// (.yaml, .yml, .json) are read in the order of their names.
func Load(path string) ([]kubeletv1.CredentialProvider, error) {
	files := []string{path}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("image-credential-provider-config: %w", err)
	}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("image-credential-provider-config: %w", err)
		}
		files = nil
		for _, e := range entries {
			if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
	}
	var all []kubeletv1.CredentialProvider
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("image-credential-provider-config: %w", err)
		}
		var config kubeletv1.CredentialProviderConfig
		if err := yamlsize.Check(raw, maxExpanded); err != nil {
			return nil, fmt.Errorf("image-credential-provider-config: %s: %w", file, err)
		}
		if err := yaml.UnmarshalStrict(raw, &config); err != nil {
			return nil, fmt.Errorf("image-credential-provider-config: %s: %w", file, err)
		}
		all = append(all, config.Providers...)
	}
	return all, validate(all)
}

func validate(all []kubeletv1.CredentialProvider) error {
	if len(all) == 0 {
		return errors.New("image-credential-provider-config: providers: at least one is required")
	}
	seen := map[string]bool{}
	for i, p := range all {
		bad := func(format string, args ...any) error {
			return fmt.Errorf("image-credential-provider-config: providers[%d].%s", i, fmt.Sprintf(format, args...))
		}
		switch {
		case p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ "):
			return bad("name: %q is no file name", p.Name)
		case seen[p.Name]:
			return bad("name: %q is there twice", p.Name)
		case len(p.MatchImages) == 0:
			return bad("matchImages: at least one is required")
		case p.DefaultCacheDuration == nil || p.DefaultCacheDuration.Duration < 0:
			return bad("defaultCacheDuration: a duration of 0 or more is required")
		case !slices.Contains(apiVersions, p.APIVersion):
			return bad("apiVersion: %q: want one of %v", p.APIVersion, apiVersions)
		}
		if problem := tokenProblem(p); problem != "" {
			return bad("tokenAttributes%s", problem)
		}
		seen[p.Name] = true
	}
	return nil
}

// Config is where plugins are.
type Config struct {
	Path, BinDir string
	// Tokens is the gate KubeletServiceAccountTokenForCredentialProviders: without
	// it a configuration with tokenAttributes is refused.
	Tokens bool
}

// Deps is what Plugins works with.
type Deps struct {
	// Accounts may be nil: then plugins that need tokens fail.
	Accounts Accounts
	Clock    clock.PassiveClock
	Log      *slog.Logger
	// Metrics may be nil.
	Metrics prometheus.Registerer
}

// Plugins runs plugins and keeps what they answer as long as they allow.
type Plugins struct {
	accounts Accounts
	clock    clock.PassiveClock
	log      *slog.Logger
	failed   *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	places   *keyed.Limit // by provider: one for each run of a plugin

	mu     sync.Mutex
	loaded Config
	all    []kubeletv1.CredentialProvider
	cache  map[string]cached
}

type cached struct {
	ring    pullauth.Keyring
	expires time.Time
}

// New makes Plugins.
func New(deps Deps) *Plugins {
	to := metric.In(deps.Metrics)
	return &Plugins{
		accounts: deps.Accounts, clock: deps.Clock, log: deps.Log, cache: map[string]cached{}, places: keyed.NewLimit(maxRuns),
		failed:  to.Counters("kubelet_credential_provider_plugin_errors_total", "Credential provider plugins that failed.", "plugin_name"),
		seconds: to.Histograms("kubelet_credential_provider_plugin_duration", "Duration of a plugin's run in seconds.", nil, "plugin_name"),
	}
}

// Keyring is what the plugins that match an image give for it. repository is the
// image's full name without tag and digest, who the pod it is for.
func (p *Plugins) Keyring(ctx context.Context, cfg Config, who Subject, image, repository string) pullauth.Keyring {
	var ring pullauth.Keyring
	for _, provider := range p.providers(cfg) {
		if !covers(provider, repository) {
			continue
		}
		one, err := p.ask(ctx, cfg, provider, who, image, repository)
		if err != nil {
			p.failed.WithLabelValues(provider.Name).Inc()
			p.log.ErrorContext(ctx, "credential provider failed", "provider", provider.Name, "image", image, "error", err.Error())
			continue
		}
		ring.Add(one)
	}
	return ring
}

func covers(provider kubeletv1.CredentialProvider, repository string) bool {
	return slices.ContainsFunc(provider.MatchImages, func(m string) bool { return pullauth.Matches(m, repository) })
}

// providers reads the configuration once, and again when it names another file.
func (p *Plugins) providers(cfg Config) []kubeletv1.CredentialProvider {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cfg.Path == "" {
		return nil
	}
	if cfg == p.loaded {
		return p.all
	}
	p.loaded, p.all, p.cache = Config{}, nil, map[string]cached{}
	all, err := Load(cfg.Path)
	if err == nil && !cfg.Tokens && slices.ContainsFunc(all, func(p kubeletv1.CredentialProvider) bool { return p.TokenAttributes != nil }) {
		err = errors.New("image-credential-provider-config: tokenAttributes: the feature gate KubeletServiceAccountTokenForCredentialProviders is off")
	}
	if err != nil {
		// After the file is repaired nothing needs a restart.
		p.log.Error("credential providers not used", "error", err.Error())
		return nil
	}
	p.loaded, p.all = cfg, all
	return all
}

func (p *Plugins) ask(ctx context.Context, cfg Config, provider kubeletv1.CredentialProvider, who Subject, image, repository string) (pullauth.Keyring, error) {
	grant, err := p.grant(ctx, provider, who)
	if err != nil || grant == nil {
		return pullauth.Keyring{}, err
	}
	registry, _, _ := strings.Cut(repository, "/")
	base := provider.Name + grant.key
	keys := []string{base + " " + image, base + " " + registry, base}
	if ring, ok := p.kept(keys); ok {
		return ring, nil
	}
	leave, err := p.enter(ctx, provider.Name)
	if err != nil {
		return pullauth.Keyring{}, err
	}
	defer leave()
	if ring, ok := p.kept(keys); ok { // the answer to a run that was waited for
		return ring, nil
	}
	resp, err := p.run(ctx, cfg, provider, image, *grant)
	if err != nil {
		return pullauth.Keyring{}, err
	}
	auths := map[string]pullauth.Auth{}
	for registry, a := range resp.Auth {
		if grant.echoed(provider, a.Password) {
			return pullauth.Keyring{}, errors.New("it answered with the service account's token as password, which cacheType ServiceAccount does not allow")
		}
		auths[registry] = pullauth.Auth{Username: a.Username, Password: a.Password, Account: grant.account}
	}
	ring := pullauth.New(auths)
	key := base
	switch resp.CacheKeyType {
	case credentialproviderv1.ImagePluginCacheKeyType:
		key += " " + image
	case credentialproviderv1.RegistryPluginCacheKeyType:
		key += " " + registry
	}
	keep := provider.DefaultCacheDuration.Duration
	if resp.CacheDuration != nil {
		keep = resp.CacheDuration.Duration
	}
	if keep > 0 {
		p.keep(key, ring, keep)
	}
	return ring, nil
}

// kept is the answer that is kept under one of some keys.
func (p *Plugins) kept(keys []string) (ring pullauth.Keyring, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		if c, ok := p.cache[key]; ok && p.clock.Now().Before(c.expires) {
			return c.ring, true
		}
		delete(p.cache, key)
	}
	return ring, false
}

// enter waits for a place to run a plugin in, for as long as a run may take: one that hangs
// costs its own credentials and holds up no pull for good.
func (p *Plugins) enter(ctx context.Context, provider string) (leave func(), err error) {
	within, cancel := context.WithTimeout(ctx, maxRun)
	defer cancel()
	if leave, err = p.places.Enter(within, provider); err != nil {
		return nil, fmt.Errorf("not run: %d runs have not ended: %w", maxRuns, err)
	}
	return leave, nil
}

// keep keeps an answer, and drops those whose time is over; when there are maxCached all
// the same, that which would be the first.
func (p *Plugins) keep(key string, ring pullauth.Keyring, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, first := p.clock.Now(), ""
	delete(p.cache, key)
	for k, c := range p.cache {
		if !now.Before(c.expires) {
			delete(p.cache, k)
		} else if first == "" || c.expires.Before(p.cache[first].expires) {
			first = k
		}
	}
	if len(p.cache) >= maxCached {
		delete(p.cache, first)
	}
	p.cache[key] = cached{ring, now.Add(d)}
}

// run runs a plugin for one image.
func (p *Plugins) run(ctx context.Context, cfg Config, provider kubeletv1.CredentialProvider, image string, grant grant) (*credentialproviderv1.CredentialProviderResponse, error) {
	request := &credentialproviderv1.CredentialProviderRequest{
		Image: image, ServiceAccountToken: grant.token, ServiceAccountAnnotations: grant.annotations,
	}
	request.APIVersion, request.Kind = provider.APIVersion, "CredentialProviderRequest"
	input, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxRun)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(cfg.BinDir, provider.Name), provider.Args...)
	var stdout, stderr capped
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	cmd.Env = os.Environ()
	cmd.WaitDelay = time.Second // for children that keep its output open
	for _, v := range provider.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	began := p.clock.Now()
	err = cmd.Run()
	p.seconds.WithLabelValues(provider.Name).Observe(p.clock.Since(began).Seconds())
	if err != nil {
		return nil, fmt.Errorf("run: %w: %s", err, quiet.Cut(string(bytes.TrimSpace(stderr.Bytes())), maxMessage))
	}
	return parse(stdout.Bytes(), provider.APIVersion)
}

// parse reads the answer of a plugin. What it says may be secret and is not quoted.
func parse(answer []byte, apiVersion string) (*credentialproviderv1.CredentialProviderResponse, error) {
	resp := &credentialproviderv1.CredentialProviderResponse{}
	if err := json.Unmarshal(answer, resp); err != nil {
		return nil, errors.New("its answer is not a CredentialProviderResponse")
	}
	if resp.Kind != "CredentialProviderResponse" || resp.APIVersion != apiVersion {
		return nil, fmt.Errorf("it answered with %s %s, want CredentialProviderResponse %s", quiet.Cut(resp.Kind, 64), quiet.Cut(resp.APIVersion, 64), apiVersion)
	}
	switch resp.CacheKeyType {
	case credentialproviderv1.ImagePluginCacheKeyType, credentialproviderv1.RegistryPluginCacheKeyType, credentialproviderv1.GlobalPluginCacheKeyType:
		return resp, nil
	}
	return nil, fmt.Errorf("cacheKeyType %q: want Image, Registry or Global", quiet.Cut(string(resp.CacheKeyType), 64))
}

// capped keeps the first maxAnswer bytes.
type capped struct{ bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	_, _ = c.Buffer.Write(p[:min(len(p), max(0, maxAnswer-c.Len()))]) // memory does not fail
	return len(p), nil
}

// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/pullauth"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/pullrecord"
)

// recording reports whether it is remembered what images were pulled with.
func recording(cfg *kubeletconfig.Config) bool { return cfg.Gate("KubeletEnsureSecretPulledImages") }

// allowed reports whether a pod may use an image that is present, going by what it
// was pulled with. If not it is pulled again, and the registry judges.
func (a *images) allowed(ctx context.Context, cfg *kubeletconfig.Config, spec ImageSpec, keyring pullauth.Keyring, ref, repository string) bool {
	if !recording(cfg) {
		return true
	}
	q := pullrecord.Question{
		Policy: pullrecord.Policy{Name: cfg.Kubelet.ImagePullCredentialsVerificationPolicy, Allowlist: cfg.Kubelet.PreloadedImagesVerificationAllowlist},
		Image:  spec.Image,
	}
	var err error
	if q.Record, q.Intent, err = a.records.Lookup(spec.Image, ref); err != nil {
		if a.unrecorded(err) {
			return true
		}
		a.log.WarnContext(ctx, "record of the image not read", "image", spec.Image, "error", err.Error())
		a.metrics.mustPull.WithLabelValues(pullrecord.LookupFailed).Inc()
		return false
	}
	if q.Record != nil && len(q.Record.CredentialMapping[pullrecord.Name(spec.Image)].KubernetesSecrets) > 0 {
		q.Credentials = keyring.Lookup(repository)
	}
	if q.Record != nil && len(q.Record.CredentialMapping[pullrecord.Name(spec.Image)].KubernetesServiceAccounts) > 0 {
		q.Account = a.plugins.Account(ctx, providers(cfg), subjectOf(spec.Pod), repository)
	}
	answer := pullrecord.Decide(q)
	a.metrics.mustPull.WithLabelValues(answer.Result).Inc()
	if answer.Learned != nil {
		learned := kubeletv1beta1.ImagePullCredentials{KubernetesSecrets: []kubeletv1beta1.ImagePullSecret{*answer.Learned}}
		if err := a.records.Learn(spec.Image, ref, learned, a.deps.Clock.Now()); err != nil {
			a.log.WarnContext(ctx, "credentials not recorded", "image", spec.Image, "error", err.Error())
		}
	}
	return !answer.MustPull
}

// unrecorded reports whether the records are closed to this process, which switches
// verification off: a fault of the installation, told once.
func (a *images) unrecorded(err error) bool {
	if !errors.Is(err, fs.ErrPermission) {
		return false
	}
	a.noRecords.Do(func() {
		a.log.Error("image pull records cannot be accessed: pods are not asked for the credentials of present images", "error", err.Error())
	})
	return true
}

// pullRecorded pulls an image, remembers with what, and returns its size.
func (a *images) pullRecorded(ctx context.Context, cfg *kubeletconfig.Config, image string, wire *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig, auths []pullauth.Auth) (ref string, size uint64, err error) {
	record := recording(cfg)
	if record {
		if err := a.records.Begin(image); a.unrecorded(err) {
			record = false
		} else if err != nil {
			return "", 0, fmt.Errorf("Failed to record image pull intent for container image %q: %w", image, err) //nolint:staticcheck // users know these words
		}
	}
	ref, used, err := a.pullWith(ctx, cfg, wire, sandbox, auths)
	id := ref
	if err == nil {
		// Records go by the id, which is not what every runtime answers.
		if stored, err := a.inspect(ctx, &runtimeapi.ImageSpec{Image: ref}); err == nil && stored != nil {
			id, size = stored.GetId(), stored.GetSize()
		}
	}
	if !record {
		return ref, size, err
	}
	done := func() error { return a.records.Done(image, id, pullrecord.Used(used), a.deps.Clock.Now()) }
	if err != nil {
		done = func() error { return a.records.Failed(image) }
	}
	if recordErr := done(); recordErr != nil {
		// The intent is left: the next pod that wants the image has to prove it.
		a.log.WarnContext(ctx, "image pull not recorded", "image", image, "error", recordErr.Error())
	}
	return ref, size, err
}

// PruneRecords removes the records of pulls, made before a time, of images that are gone.
func (a *images) PruneRecords(ctx context.Context, before time.Time) error {
	resp, err := a.deps.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	present := map[string]bool{}
	for _, image := range resp.GetImages() {
		present[image.GetId()] = true
	}
	if err := a.records.Prune(present, before); err != nil && !a.unrecorded(err) {
		return fmt.Errorf("image pull records: %w", err)
	}
	return nil
}

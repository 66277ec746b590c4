// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/pkg/quiet"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/credprovider"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/pullauth"
)

// parseImage fills in the tag of an image that names neither tag nor digest, and
// returns the repository its credentials are filed under.
func parseImage(image string) (tagged, repository string, err error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", "", fmt.Errorf("couldn't parse image name %q: %w", quiet.Cut(image, 512), err)
	}
	_, hasTag := named.(reference.Tagged)
	_, hasDigest := named.(reference.Digested)
	if !hasTag && !hasDigest {
		image += ":latest"
	}
	return image, named.Name(), nil
}

// EnsureImage makes an image present as its pull policy asks and returns the
// reference containers are made with. It blocks while the image is pulled.
// Reasons: see errors.go.
func (a *images) EnsureImage(ctx context.Context, spec ImageSpec) (string, error) {
	if spec.Container == "" {
		a.metrics.imageVolumes.Inc()
	}
	ref, err := a.ensureImage(ctx, spec)
	if err == nil {
		return ref, nil
	}
	if ctx.Err() == nil {
		a.metrics.userPods.failed(spec.Pod)
	}
	if spec.Container != "" && ctx.Err() == nil {
		a.event(ctx, spec.Pod, spec.Container, v1.EventTypeWarning, "Failed", "Error: "+string(err.Reason))
		_, kind := pod.FindContainer(spec.Pod, spec.Container)
		a.metrics.containers.WithLabelValues(containerType(kind)).Inc()
		a.metrics.containerErrors.WithLabelValues(containerType(kind), string(err.Reason)).Inc()
	}
	return "", err
}

// FindImage returns the reference of an image that is present and that the pod may
// use; none where EnsureImage would pull it.
func (a *images) FindImage(ctx context.Context, spec ImageSpec) (string, error) {
	image, repository, err := parseImage(spec.Image)
	if err != nil {
		return "", err
	}
	cfg, err := a.config()
	if err != nil {
		return "", err
	}
	found, err := a.inspect(ctx, a.imageSpec(cfg, spec, image))
	if err != nil || found == nil || !a.allowed(ctx, cfg, spec, a.keyring(ctx, spec.Pod), found.GetId(), repository) {
		return "", err
	}
	a.tellPresent(ctx, spec)
	return found.GetId(), nil
}

func (a *images) ensureImage(ctx context.Context, spec ImageSpec) (ref string, failure *Error) {
	present, needed := "unknown", "unknown"
	defer func() {
		a.metrics.ensureImage.WithLabelValues(strings.ToLower(string(spec.Policy)), present, needed).Inc()
	}()
	image, repository, err := parseImage(spec.Image)
	if err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: %v", spec.Image, err)
		a.event(ctx, spec.Pod, spec.Container, v1.EventTypeWarning, "InspectFailed", message)
		return "", &Error{reason.InvalidImageName, message, err}
	}
	cfg, err := a.config()
	if err != nil {
		return "", failed(reason.ErrImagePull, err)
	}
	wire := a.imageSpec(cfg, spec, image)
	// Also where nothing is pulled: a secret that is missing will be missed later.
	keyring := a.keyring(ctx, spec.Pod)
	if spec.Policy != v1.PullAlways {
		found, err := a.inspect(ctx, wire)
		if err != nil {
			message := fmt.Sprintf("Failed to inspect image %q: %v", spec.Image, err)
			a.event(ctx, spec.Pod, spec.Container, v1.EventTypeWarning, "InspectFailed", message)
			return "", &Error{reason.ImageInspectError, message, err}
		}
		usable := found != nil && a.allowed(ctx, cfg, spec, keyring, found.GetId(), repository)
		present = strconv.FormatBool(found != nil)
		if found != nil || spec.Policy != v1.PullNever { // what may not be pulled is not judged
			needed = strconv.FormatBool(!usable)
		}
		if usable {
			a.tellPresent(ctx, spec)
			return found.GetId(), nil
		}
		// An image the pod may not use is absent, as far as the pod can see.
		if spec.Policy == v1.PullNever {
			message := fmt.Sprintf("Container image %q is not present with pull policy of Never", spec.Image)
			a.event(ctx, spec.Pod, spec.Container, v1.EventTypeWarning, reason.ErrImageNeverPull, message)
			return "", &Error{reason.ErrImageNeverPull, message, Reason(reason.ErrImageNeverPull)}
		}
	}
	needed = "true"
	return a.pull(ctx, cfg, spec, keyring, wire, repository)
}

func (a *images) imageSpec(cfg *kubeletconfig.Config, spec ImageSpec, image string) *runtimeapi.ImageSpec {
	wire := &runtimeapi.ImageSpec{Image: image, Annotations: spec.Pod.Annotations}
	if cfg.Gate("RuntimeClassInImageCriApi") {
		wire.RuntimeHandler = spec.RuntimeHandler
	}
	return wire
}

// inspect finds an image; nil when it is not there.
func (a *images) inspect(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	resp, err := a.deps.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image})
	if err != nil {
		return nil, err
	}
	if resp.GetImage() != nil && resp.GetImage().GetId() == "" {
		return nil, fmt.Errorf("the runtime knows image %q without an id", image.GetImage())
	}
	if image := resp.GetImage(); image != nil {
		a.imageUsers.Store(image.GetId(), userOf(image))
	}
	return resp.GetImage(), nil
}

func (a *images) tellPresent(ctx context.Context, spec ImageSpec) {
	a.event(ctx, spec.Pod, spec.Container, v1.EventTypeNormal, "Pulled",
		fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", spec.Image))
}

func (a *images) pull(ctx context.Context, cfg *kubeletconfig.Config, spec ImageSpec, keyring pullauth.Keyring, wire *runtimeapi.ImageSpec, repository string) (string, *Error) {
	var ring pullauth.Keyring
	ring.Add(keyring)
	ring.Add(a.plugins.Keyring(ctx, providers(cfg), subjectOf(spec.Pod), wire.GetImage(), repository))
	auths := ring.Lookup(repository)
	// containerd takes the snapshotter from an annotation of these, CRI-O a policy from the
	// namespace, and the cgroup in which it pulls where it is to be the pod's.
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: spec.Pod.Name, Namespace: spec.Pod.Namespace, Uid: string(spec.Pod.UID)},
		Labels:   pod.SandboxLabels(spec.Pod), Annotations: pod.SandboxAnnotations(spec.Pod),
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: spec.CgroupParent},
	}
	a.event(ctx, spec.Pod, spec.Container, v1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", spec.Image))
	asked := a.deps.Clock.Now()
	running := func() {}
	if a.deps.Pulls != nil {
		progress := a.deps.Pulls.Begin(string(spec.Pod.UID), spec.Container, spec.Image)
		defer progress.End()
		running = progress.Running
	}
	if err := a.pulls.Enter(ctx, turnsOf(cfg)); err != nil {
		return "", a.pullFailed(ctx, spec, err)
	}
	defer a.pulls.Leave()
	if spec.Policy != v1.PullAlways && a.deps.Clock.Since(asked) > 0 {
		// Another pod may have brought it while this one waited.
		found, err := a.inspect(ctx, wire)
		if err == nil && found != nil && a.allowed(ctx, cfg, spec, keyring, found.GetId(), repository) {
			a.tellPresent(ctx, spec)
			return found.GetId(), nil
		}
	}
	running()
	began := a.deps.Clock.Now()
	ref, size, err := a.pullRecorded(ctx, cfg, spec.Image, wire, sandbox, auths)
	if err != nil {
		return "", a.pullFailed(ctx, spec, err)
	}
	took, total := a.deps.Clock.Since(began), a.deps.Clock.Since(asked)
	a.metrics.pullSeconds.WithLabelValues(sizeBucket(size)).Observe(total.Seconds())
	a.event(ctx, spec.Pod, spec.Container, v1.EventTypeNormal, "Pulled",
		fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
			spec.Image, took.Truncate(time.Millisecond), total.Truncate(time.Millisecond), size))
	if a.deps.Pulled != nil {
		a.deps.Pulled()
	}
	return ref, nil
}

// providers is where credential provider plugins are.
func providers(cfg *kubeletconfig.Config) credprovider.Config {
	return credprovider.Config{
		Path: cfg.Node.ImageCredentialProviderConfig, BinDir: cfg.Node.ImageCredentialProviderBinDir,
		Tokens: cfg.Gate("KubeletServiceAccountTokenForCredentialProviders"),
	}
}

// subjectOf is the pod as plugins get it.
func subjectOf(p *v1.Pod) credprovider.Subject {
	return credprovider.Subject{Namespace: p.Namespace, Pod: p.Name, PodUID: string(p.UID), Account: p.Spec.ServiceAccountName}
}

// pullWith tries each credential until one will do and returns it; without any
// it tries without.
func (a *images) pullWith(ctx context.Context, cfg *kubeletconfig.Config, image *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig, auths []pullauth.Auth) (ref string, used *pullauth.Auth, err error) {
	tries := []*pullauth.Auth{nil}
	if len(auths) > 0 {
		tries = nil
		for i := range auths {
			tries = append(tries, &auths[i])
		}
	}
	var errs []error
	for _, auth := range tries {
		if err := a.limiter.allow(cfg); err != nil {
			return "", nil, err
		}
		if err := fault.Hit(ctx, "podworker.pull"); err != nil {
			return "", nil, err
		}
		request := &runtimeapi.PullImageRequest{Image: image, SandboxConfig: sandbox}
		if auth != nil {
			request.Auth = &runtimeapi.AuthConfig{Username: auth.Username, Password: auth.Password}
		}
		resp, err := a.deps.Images.PullImage(ctx, request)
		if err == nil && resp.GetImageRef() == "" {
			err = fmt.Errorf("imageRef of image %q is not set", image.GetImage())
		}
		if err == nil {
			return resp.GetImageRef(), auth, nil
		}
		errs = append(errs, told(err))
		if ctx.Err() != nil {
			break
		}
	}
	return "", nil, utilerrors.NewAggregate(errs)
}

// told is a pull's error as a kubelet tells it: without a code that says nothing.
func told(err error) error {
	if s, ok := status.FromError(err); ok && s.Code() == codes.Unknown {
		return errors.New(s.Message())
	}
	return err
}

// Prefixes by which a runtime tells these two from any other failed pull, in an error without
// a code of its own (cri-api, pkg/errors).
var pullReasons = []struct {
	reason Reason
	words  string
}{
	{reason.RegistryUnavailable, "because the registry is unavailable"},
	{reason.SignatureValidationFailed, "because the signature validation failed"},
}

func (a *images) pullFailed(ctx context.Context, spec ImageSpec, err error) *Error {
	a.event(ctx, spec.Pod, spec.Container, v1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %v", spec.Image, err))
	for _, r := range pullReasons {
		if detail, ok := strings.CutPrefix(err.Error(), string(r.reason)); ok {
			return &Error{r.reason, fmt.Sprintf("image pull failed for %s %s%s", spec.Image, r.words, detail), err}
		}
	}
	return &Error{reason.ErrImagePull, err.Error(), err}
}

// keyring holds the pod's credentials, then the node's.
func (a *images) keyring(ctx context.Context, p *v1.Pod) pullauth.Keyring {
	var secrets []pullauth.Keyring
	var missing []string
	for _, ref := range p.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		secret, err := a.deps.Lookups.Secret(p.Namespace, ref.Name)
		if err != nil {
			missing = append(missing, ref.Name)
			continue
		}
		one, err := pullauth.FromSecret(secret)
		if err != nil {
			a.log.WarnContext(ctx, "pull secret not usable", "pod", pod.FullName(p), "error", err.Error())
			missing = append(missing, ref.Name)
			continue
		}
		secrets = append(secrets, one)
	}
	if len(missing) > 0 {
		a.event(ctx, p, "", v1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
			fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", ")))
	}
	ring := pullauth.Merge(secrets...)
	ring.Add(a.nodeKeyring(ctx))
	return ring
}

// nodeKeyring is the node's own docker configuration, if it has one.
func (a *images) nodeKeyring(ctx context.Context) pullauth.Keyring {
	content, err := a.deps.Lookups.DockerConfig()
	var ring pullauth.Keyring
	if err == nil && len(content) > 0 {
		ring, err = pullauth.ParseConfig(content)
	}
	if err != nil {
		a.log.WarnContext(ctx, "node's pull credentials not usable", "error", err.Error())
	}
	return ring
}

// imageUser is who an image runs as. What an id stands for never changes, so
// each is asked for once.
func (a *images) imageUser(ctx context.Context, ref string) (pod.ImageUser, error) {
	if user, ok := a.imageUsers.Load(ref); ok {
		return user.(pod.ImageUser), nil
	}
	image, err := a.inspect(ctx, &runtimeapi.ImageSpec{Image: ref})
	if err != nil {
		return pod.ImageUser{}, err
	}
	return userOf(image), nil
}

func userOf(image *runtimeapi.Image) pod.ImageUser {
	switch {
	case image.GetUid() != nil:
		return pod.ImageUser{UID: new(image.GetUid().GetValue())}
	case image.GetUsername() != "":
		return pod.ImageUser{Name: image.GetUsername()}
	}
	return pod.ImageUser{UID: new(int64(0))}
}

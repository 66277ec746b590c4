// SPDX-License-Identifier: Apache-2.0

// Package demand decides what a CSI driver is asked for a pod's volume, and when
// it may be: once the volume is attached, if it attaches. It is pure; objects and
// tokens come in as lookups.
package demand

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	utilstrings "k8s.io/utils/strings"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/volume/internal/claim"
	"github.com/sextant-node/sextant/services/volume/internal/csi"
)

// Objects looks up what a volume is made of. Errors say that an object is not there
// or not known yet.
type Objects interface {
	// Driver is nil without an error where the API has none of that name.
	Driver(name string) (*storagev1.CSIDriver, error)
	Secret(namespace, name string) (*v1.Secret, error)
	Attachment(name string) (*storagev1.VolumeAttachment, error)
	Node() (*v1.Node, error)
	// NodeName is this node's.
	NodeName() (string, error)
	// Gate reports whether a feature gate is on.
	Gate(name string) (bool, error)
	// FileLabel is the SELinux label of files for processes with these options; empty
	// without options, and on a node without SELinux.
	FileLabel(*v1.SELinuxOptions) (string, error)
	// DriverToken requests a pod's token for a driver; no audience means the API
	// server's.
	DriverToken(p *v1.Pod, audience string, life time.Duration) (token string, expires time.Time, err error)
}

// Keys that publishing adds to a volume's attributes (CSIDriver.spec.podInfoOnMount
// and tokenRequests).
const (
	prefix    = "csi.storage.k8s.io/"
	keyTokens = prefix + "serviceAccount.tokens"
)

// Wait says that a volume is not attached yet.
type Wait struct{ For string }

func (w *Wait) Error() string { return w.For }

// Asked is a request, and what else follows from the driver's object.
type Asked struct {
	csi.Request
	// Again is how soon the driver is to publish again; zero for never.
	Again time.Duration
	// Growth is what its claim says of the volume's size.
	Growth Growth
}

// again is how often requiresRepublish publishes.
const again = time.Minute

// Attach is the attach controller's name of a persistent volume on this node if the
// volume has to be attached, else empty.
func Attach(src *claim.Source, o Objects) (string, error) {
	of := src.Volume.Spec.CSI
	driver, err := o.Driver(of.Driver)
	if err != nil {
		return "", fmt.Errorf("CSIDriver %s: %w", of.Driver, err)
	}
	if driver != nil && driver.Spec.AttachRequired != nil && !*driver.Spec.AttachRequired {
		return "", nil
	}
	return csi.UniqueName(of.Driver + "^" + of.VolumeHandle), nil
}

// Listed waits until the node's status says that a volume is attached.
func Listed(name string, o Objects) error {
	node, err := o.Node()
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	unique := v1.UniqueVolumeName(name)
	if !slices.Contains(node.Status.VolumesInUse, unique) {
		return &Wait{"Volume has not been added to the list of VolumesInUse in the node's volume status"}
	}
	if !slices.ContainsFunc(node.Status.VolumesAttached, func(a v1.AttachedVolume) bool { return a.Name == unique }) {
		return &Wait{"volume is not attached according to the node's status"}
	}
	return nil
}

// Attached says what a volume waits for until it is attached, and then what the
// attacher left for the driver.
func Attached(name string, src *claim.Source, o Objects) (map[string]string, error) {
	node, err := o.NodeName()
	if err != nil {
		return nil, err
	}
	id := attachment(src, node)
	if err := Listed(name, o); err != nil {
		if full := exhausted(src.Volume.Spec.CSI.Driver, id, o); full != nil {
			return nil, full
		}
		return nil, err
	}
	a, err := o.Attachment(id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("volume attachment %s: %w", id, err)
	case a.DeletionTimestamp != nil:
		return nil, &Wait{"volume attachment is being deleted"}
	case a.Status.Attached:
		return a.Status.AttachmentMetadata, nil
	case a.Status.AttachError != nil:
		return nil, errors.New(a.Status.AttachError.Message)
	}
	return nil, &Wait{"volume attachment " + id + " is not attached yet"}
}

func attachment(src *claim.Source, node string) string {
	return csi.Attachment(src.Volume.Spec.CSI.Driver, src.Volume.Spec.CSI.VolumeHandle, node)
}

// Persistent is what a claim's volume is asked for. context is what the attacher
// left. Of a volume that is published only what changes is looked up.
func Persistent(p *v1.Pod, v *v1.Volume, src *claim.Source, context map[string]string, published bool, o Objects) (*Asked, error) {
	pv, of := src.Volume, src.Volume.Spec.CSI
	node, err := o.NodeName()
	if err != nil {
		return nil, err
	}
	driver, err := supports(of.Driver, storagev1.VolumeLifecyclePersistent, o)
	if err != nil {
		return nil, err
	}
	a := &Asked{Request: csi.Request{
		UID: p.UID, Volume: v.Name, Name: utilstrings.EscapeQualifiedName(pv.Name), Driver: of.Driver, Handle: of.VolumeHandle,
		Block: src.Block, ReadOnly: src.ReadOnly, Exclusive: src.Exclusive(),
		FSType: of.FSType, AccessMode: v1.ReadWriteOnce, MountOptions: pv.Spec.MountOptions,
		Attributes: of.VolumeAttributes, PublishContext: context,
		Node: node, Attachment: attachment(src, node),
	},
		Growth: Grow(src),
	}
	a.Size, a.Had = a.Growth.Size, a.Growth.Had
	if len(pv.Spec.AccessModes) > 0 {
		a.AccessMode = pv.Spec.AccessModes[0]
	}
	once := slices.ContainsFunc(pv.Spec.AccessModes, func(m v1.PersistentVolumeAccessMode) bool {
		return m == v1.ReadWriteOnce || m == v1.ReadWriteOncePod
	})
	group(&a.Request, p, driver, once)
	if driver != nil && driver.Spec.SELinuxMount != nil && *driver.Spec.SELinuxMount && !src.Block {
		if a.Label, err = Label(p, v, src.Exclusive(), o); err != nil {
			return nil, err
		}
	}
	repeat(a, driver)
	if published && !a.Republish && a.Size == 0 {
		return a, nil
	}
	for _, s := range []struct {
		from *v1.SecretReference
		to   *map[string]string
	}{{of.NodeStageSecretRef, &a.StageSecrets}, {of.NodePublishSecretRef, &a.PublishSecrets}, {of.NodeExpandSecretRef, &a.ExpandSecrets}} {
		if s.from == nil || s.from.Name == "" {
			continue
		}
		if *s.to, err = secret(s.from.Namespace, s.from.Name, o); err != nil {
			return nil, err
		}
	}
	if err := publishing(a, p, driver, o); err != nil {
		return nil, err
	}
	return a, nil
}

// Inline is what a volume of the pod's own is asked for.
func Inline(p *v1.Pod, v *v1.Volume, published bool, o Objects) (*Asked, error) {
	of := v.CSI
	node, err := o.NodeName()
	if err != nil {
		return nil, err
	}
	driver, err := supports(of.Driver, storagev1.VolumeLifecycleEphemeral, o)
	if err != nil {
		return nil, err
	}
	a := &Asked{Request: csi.Request{
		UID: p.UID, Volume: v.Name, Name: v.Name, Driver: of.Driver, Handle: csi.InlineHandle(p.UID, v.Name), Inline: true,
		ReadOnly: ptr.Deref(of.ReadOnly, false), FSType: ptr.Deref(of.FSType, ""), AccessMode: v1.ReadWriteOnce, Attributes: of.VolumeAttributes, Node: node,
	}}
	a.Attachment = csi.Attachment(a.Driver, a.Handle, a.Node)
	group(&a.Request, p, driver, true)
	if driver.Spec.SELinuxMount != nil && *driver.Spec.SELinuxMount {
		if a.Label, err = Label(p, v, false, o); err != nil {
			return nil, err
		}
	}
	repeat(a, driver)
	if published && !a.Republish {
		return a, nil
	}
	if of.NodePublishSecretRef != nil && of.NodePublishSecretRef.Name != "" {
		if a.PublishSecrets, err = secret(p.Namespace, of.NodePublishSecretRef.Name, o); err != nil {
			return nil, err
		}
	}
	if err := publishing(a, p, driver, o); err != nil {
		return nil, err
	}
	return a, nil
}

// supports finds a driver's object, which need not exist for persistent volumes, and
// makes sure that the driver has volumes of a kind.
func supports(name string, mode storagev1.VolumeLifecycleMode, o Objects) (*storagev1.CSIDriver, error) {
	driver, err := o.Driver(name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("CSIDriver %s: %w", name, err)
	case driver == nil && mode == storagev1.VolumeLifecyclePersistent:
		return nil, nil //nolint:nilnil // as documented
	case driver == nil:
		return nil, fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", mode, name)
	case !slices.Contains(driver.Spec.VolumeLifecycleModes, mode):
		return nil, fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, name, driver.Spec.VolumeLifecycleModes)
	}
	return driver, nil
}

func secret(namespace, name string, o Objects) (map[string]string, error) {
	s, err := o.Secret(namespace, name)
	if err != nil {
		return nil, fmt.Errorf("fetching secret %s/%s failed: %w", namespace, name, err)
	}
	all := map[string]string{}
	for key, value := range s.Data {
		all[key] = string(value)
	}
	return all, nil
}

// group decides about fsGroup (CSIDriver.spec.fsGroupPolicy). once says that one
// node writes at a time.
func group(r *csi.Request, p *v1.Pod, driver *storagev1.CSIDriver, once bool) {
	if r.Block || p.Spec.SecurityContext == nil || p.Spec.SecurityContext.FSGroup == nil {
		return
	}
	r.FSGroup = p.Spec.SecurityContext.FSGroup
	r.GroupOnMismatch = p.Spec.SecurityContext.FSGroupChangePolicy != nil && *p.Spec.SecurityContext.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if driver != nil && driver.Spec.FSGroupPolicy != nil {
		policy = *driver.Spec.FSGroupPolicy
	}
	switch policy {
	case storagev1.FileFSGroupPolicy:
		r.GiveFSGroup = !r.ReadOnly
	case storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy:
		r.GiveFSGroup = !r.ReadOnly && once && r.FSType != ""
	}
}

func repeat(a *Asked, driver *storagev1.CSIDriver) {
	if driver != nil && driver.Spec.RequiresRepublish != nil && *driver.Spec.RequiresRepublish {
		a.Republish, a.Again = true, again
	}
}

// publishing adds what the driver gets to know of the pod.
func publishing(a *Asked, p *v1.Pod, driver *storagev1.CSIDriver, o Objects) error {
	if driver == nil {
		return nil
	}
	a.PublishAttributes = map[string]string{}
	if driver.Spec.PodInfoOnMount != nil && *driver.Spec.PodInfoOnMount {
		a.PublishAttributes[prefix+"pod.name"] = p.Name
		a.PublishAttributes[prefix+"pod.namespace"] = p.Namespace
		a.PublishAttributes[prefix+"pod.uid"] = string(p.UID)
		a.PublishAttributes[prefix+"serviceAccount.name"] = p.Spec.ServiceAccountName
		a.PublishAttributes[prefix+"ephemeral"] = strconv.FormatBool(a.Inline)
	}
	if len(driver.Spec.TokenRequests) == 0 {
		return nil
	}
	all := map[string]authenticationv1.TokenRequestStatus{}
	for _, r := range driver.Spec.TokenRequests {
		token, expires, err := o.DriverToken(p, r.Audience, pod.TokenLife(r.ExpirationSeconds))
		if err != nil {
			return fmt.Errorf("token for the driver, audience %q: %w", r.Audience, err)
		}
		all[r.Audience] = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(expires.UTC())}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if driver.Spec.ServiceAccountTokenInSecrets != nil && *driver.Spec.ServiceAccountTokenInSecrets {
		a.PublishSecrets = maps.Clone(a.PublishSecrets)
		if a.PublishSecrets == nil {
			a.PublishSecrets = map[string]string{}
		}
		a.PublishSecrets[keyTokens] = string(text)
		return nil
	}
	a.PublishAttributes[keyTokens] = string(text)
	return nil
}

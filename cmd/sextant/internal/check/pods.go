// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	"github.com/sextant-node/sextant/pkg/pod/volumetype"
)

// pods asks the API server for the pods of the node, and for the persistent volumes that
// their claims are bound to, with the node's own credential.
func (f *Facts) pods(ctx context.Context, conf *kubeletconfig.Config) error {
	credential, err := clientcmd.BuildConfigFromFlags("", conf.Node.KubeConfig)
	if err != nil {
		return err
	}
	credential.QPS = -1 // two questions for each claim, one after the other, once
	credential.Timeout = patience
	client, err := kubernetes.NewForConfig(credential)
	if err != nil {
		return err
	}
	list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", conf.Node.Name).String(),
	})
	if err != nil {
		return err
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Annotations[v1.MirrorPodAnnotationKey] != "" {
			continue // its manifest was read
		}
		found := podOf(p)
		for j := range p.Spec.Volumes {
			v := &p.Spec.Volumes[j]
			name := volumetype.ClaimName(p, v)
			if name == "" {
				continue
			}
			refused, err := claimed(ctx, client, p.Namespace, name)
			if err != nil {
				f.unread(fmt.Sprintf("claim %s/%s", p.Namespace, name), err)
			}
			if refused != "" {
				found.Volumes = append(found.Volumes, fmt.Sprintf("volume %s: %s", v.Name, refused))
			}
		}
		f.Pods = append(f.Pods, found)
	}
	return nil
}

// podOf is what is to be said of a pod by itself.
func podOf(p *v1.Pod) Pod {
	found := Pod{Name: p.Namespace + "/" + p.Name}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if refused := volumetype.Of(v).Refused; refused != "" {
			found.Volumes = append(found.Volumes, fmt.Sprintf("volume %s: %s", v.Name, refused+flexDriver(v)))
		}
	}
	return found
}

// flexDriver names the driver of a FlexVolume.
func flexDriver(v *v1.Volume) string {
	if v.FlexVolume == nil {
		return ""
	}
	return fmt.Sprintf(" (FlexVolume driver %s)", v.FlexVolume.Driver)
}

// claimed is why the persistent volume of a claim is not made, empty when it is, or when
// the claim is not bound.
func claimed(ctx context.Context, client kubernetes.Interface, namespace, name string) (string, error) {
	claim, err := client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || claim.Spec.VolumeName == "" {
		return "", err
	}
	pv, err := client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if pv, err = volumetype.Translate(pv); err != nil {
		return fmt.Sprintf("persistent volume %s: %v", claim.Spec.VolumeName, err), nil
	}
	of := volumetype.OfPersistent(pv)
	if of.Refused == "" && !of.Block && pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock {
		return fmt.Sprintf("persistent volume %s: a volume of %s cannot be a block device", pv.Name, of.Plugin), nil
	}
	if flex := pv.Spec.FlexVolume; flex != nil {
		return fmt.Sprintf("persistent volume %s: %s (FlexVolume driver %s)", pv.Name, of.Refused, flex.Driver), nil
	}
	if of.Refused != "" {
		return fmt.Sprintf("persistent volume %s: %s", pv.Name, of.Refused), nil
	}
	return "", nil
}

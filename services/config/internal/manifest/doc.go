// SPDX-License-Identifier: Apache-2.0

// Package manifest turns manifests into static pods.
//
// It owns how a manifest is read (YAML or JSON, at most 10 MiB; a value of the wrong type
// is an error that names the file and the field; an unknown field, a key given twice or a
// second document has no effect, as with a kubelet, and is told beside the pod), the
// defaults the API server would set, the identity a pod gets from its manifest, and the
// checks a pod must pass.
//
// The identity equals the kubelet's: the same manifest at the same path on the same node
// yields the same UID, so that either adopts the other's static pods.
//
// It is pure: a function of the manifest's bytes and its Source; nothing is kept.
package manifest

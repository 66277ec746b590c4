// SPDX-License-Identifier: Apache-2.0

// Package eventv1 is the wire form of a Kubernetes Event on its way to the
// recorder in status. Generated from event.proto.
package eventv1

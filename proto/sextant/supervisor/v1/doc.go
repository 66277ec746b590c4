// SPDX-License-Identifier: Apache-2.0

// Package supervisorv1 is the contract of the supervisor: the deeds that need a
// right no service has. Generated from supervisor.proto.
package supervisorv1

// SPDX-License-Identifier: Apache-2.0

// Package units holds the systemd units against what they promise.
package units

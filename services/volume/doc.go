// SPDX-License-Identifier: Apache-2.0

// Package volume mounts the volumes of pods.
//
// It owns the mounts of each pod (feed volume.pods) below
// <root>/pods/<uid>/volumes, and what is written into them. Volumes that no container of the
// pod mounts or has as a device are not made. podworker declares a
// pod and later withdraws it; nothing else makes or removes a volume, and a
// volume is never unmounted while its pod is declared.
//
// It promises that a pod's item says for every volume what it does or waits for;
// that a ConfigMap, Secret or token changes on disk in one step (a
// symlink swapped by rename) as soon as the object changes; and that a volume which hangs
// or fails delays no other pod's: what may hang is done by child processes (package
// child), so a file system that is gone costs its pod a wait, and nothing a restart.
//
// A type of volume is a plugin (internal/plugin), found by the table of pkg/pod/volumetype.
// Volumes of CSI drivers are made by these (internal/csi): drivers register
// themselves (internal/plugins), and are asked once a claim has led to a volume
// (internal/claim) that is attached (internal/demand). Which drivers there are and
// which volumes are in use is the feed volume.node.
//
// How full volumes are (Stats) is measured on request, and kept for
// volumeStatsAggPeriod.
//
// It comes back from its intent journal: a pod that was declared is declared,
// each step is made sure of again without disturbing what is there, and what
// was being withdrawn is withdrawn. Folders on disk that the journal does not
// know (a lost journal, another agent's pods) are listed, and kept until
// podworker declares or withdraws their pod.
package volume

// SPDX-License-Identifier: Apache-2.0

// Package kubeletconfig reads the kubelet's own configuration exactly as a kubelet
// v1.36 reads it: its flags, its --config file, its --config-dir drop-ins, its
// feature gates and its defaults, and yields one effective [Config].
//
// # What it owns
//
// The meaning of every kubelet flag and of every field of KubeletConfiguration
// (kubelet.config.k8s.io/v1beta1): default, precedence, validity, and whether
// Sextant acts on it. The last is one table ([FieldSupport], [FlagSupport],
// [GateSupport]); warnings, refusals, `sextant config explain` and docs/support.md are
// printed from it. A default that is not
// honoured, or a behaviour without a setting that is missing, is a warning of every
// [Load], so nothing is silently ignored.
//
// # Precedence
//
// From low to high: built-in defaults, the --config file, the *.conf files
// below --config-dir (lexical order, JSON merge patch onto what is there),
// flags given on the command line. featureGates are merged per key across all
// of them. Without --config four legacy defaults of the command line apply:
// anonymous authentication on, webhook authentication off, authorization
// AlwaysAllow, read-only port 10255.
//
// Three consequences of that order surprise people and are kept, because a
// node must not change when the kubelet on it is replaced:
//   - the file is defaulted before drop-ins are merged, so a drop-in that sets
//     only maxParallelImagePulls meets serializeImagePulls: true, and one that
//     sets only nodeStatusUpdateFrequency leaves nodeStatusReportFrequency;
//   - the default eviction thresholds are filled in for a --config file only,
//     and a drop-in's evictionHard is merged into them key by key;
//   - an explicitly empty list in the --config file (enforceNodeAllocatable:
//     []) is lost, and so defaulted again, as soon as --config-dir is given.
//
// # What it promises
//
// Decoding is the kubelet's: strict, and lenient with a warning where the strict one
// refuses. An unknown field and a duplicate are a [Warning] that names file, line and
// field; a wrong type and a second YAML document are errors. Every error is a
// [Problem] that names the file and line (or the flag) and the field path, and all of
// them are reported at once. Beyond the kubelet's own validation, values that would make it exit or
// misbehave later (thresholds, reserved resources, cipher suites, addresses)
// are checked here, before anything runs.
//
// [Load] is a pure function of its inputs: files come through an io/fs.FS, the
// host name and working directory are passed in. It may be called again with
// the same [Flags] at any time; that is how a changed file is re-read while
// the last good Config stays in force. Only file.go touches the machine.
//
// # How it comes back
//
// The package keeps no state. A Config survives as JSON ([Config.Marshal],
// [Unmarshal]); damaged bytes are an error and never a partly filled Config.
package kubeletconfig

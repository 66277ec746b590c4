// SPDX-License-Identifier: Apache-2.0

// Package config is the service that knows what this node should run.
//
// # What it owns
//
// The desired pods, merged from the manifest folder, the manifest URL and the
// API server (feed config.pods), the status of each at the API server
// (config.statuses), what became of each source (config.sources),
// the API objects the pods need (config.objects, config.secrets, where the
// node's own docker configuration is too), the mirror
// pods as the API server has them (config.mirrors), the validated
// KubeletConfiguration with its generation (config.kubelet), and the answers
// that need the node credential: service-account tokens and reviews.
//
// # What it promises
//
//   - config.pods is complete only when every configured source has been read
//     whole since this process started: the API server's first list, the
//     folder's first listing, the URL's first usable answer. Until then the pods
//     last accepted are served, so the node starts with the API server away, and
//     no pod is ended because of it.
//   - A manifest that cannot be used is one problem, naming file and field, in
//     config.sources, in the log and as one event on the Node. All other pods go
//     on, and so does the pod last accepted from that file: while the file
//     exists but is invalid, its last good version stays; it goes when the file
//     goes. (The kubelet drops it at the next full listing; a typo should not
//     stop a control plane.)
//   - What a kubelet passes over in a manifest, unknown fields, keys given twice and
//     further documents, has no effect here either: the pod runs, and a warning names
//     file and field, in the log and as one event on the Node.
//   - Of two static pods of one full name the one that was there first stays and
//     the other is refused. An edited manifest is a new UID: the old pod is
//     removed just before the new one appears, as the kubelet orders it.
//   - A manifest that is removed and written again ends its pod and starts it
//     again, as it does with the kubelet, however quickly and with the same content:
//     the pod's begun_at moves on. What happens to the folder while config does not
//     run is not known: then the content counts.
//   - A configuration that does not load keeps the last good one in force, over
//     restarts too, with an event and failing health; only without any last good
//     one the process does not start. Files are read again when they change.
//     Where the node's name would change, the process has to be restarted.
//   - An object the API server does not have is "absent"; one that cannot be
//     read has an error, and keeps its last value.
//
// config.objects is complete when, with an API server, its pods and all Services
// were read: it then lists what the pods need. Manifests are not waited for. Each
// item tells itself whether it was read yet.
//
// # How it comes back
//
// After kill -9 it reads its store (internal/keep), publishes the last accepted
// configuration, pods and objects, and listens to its sources again. Nothing is
// waited for. A store that is damaged is set aside, with an event; without it
// the sources alone tell.
//
// # Rooms
//
// internal/merge and internal/refs decide, and are pure; internal/file, http
// and api are the sources; internal/objects follows objects; internal/cluster
// is the API client; internal/token caches tokens, and ahead.go has those of new pods
// made; internal/watch is inotify; loop.go is the one loop that merges and publishes.
package config

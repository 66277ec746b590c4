// SPDX-License-Identifier: Apache-2.0

// Package pleg observes the container runtime: the pod lifecycle event
// generator, as a service.
//
// It owns the observed record of each pod (feed pleg.pods) and the state of the runtime
// as a whole (feed pleg.runtime). No other service does.
//
// It promises that a record is one reading of one pod: newest first, and never older than
// the record before it. It has every sandbox and container that the runtime lists; a caller
// of Refresh that had all of them made says what there may be, and then the runtime is asked
// about that and about what the last record has, and lists nothing. Relisting finds what
// neither knows. Refresh answers with a reading that began after the call. A runtime
// that does not answer for one pod harms the record of that pod only: the last
// reading stays, with the error beside it; where there was none, the record
// holds nothing but the error, so that "absent" still means "not there". Runtime
// events and relisting only mark pods for reading; a lost, doubled or late event
// changes nothing.
//
// It comes back by relisting: nothing is kept on disk. Until the first relist has been
// read through, the feed is incomplete, so no reader takes a pod for gone.
package pleg

// SPDX-License-Identifier: Apache-2.0

// Package harness gives end-to-end tests the real parts: containerd in both
// generations that users have, an OCI registry that can be told to misbehave,
// etcd with an API server and controller manager, Sextant nodes as separate
// processes, and nodes run by the reference kubelet to compare them with.
//
// A test binary calls Main from its TestMain. That makes one Lab: a short
// directory below the temporary one, an interface for node addresses, a name
// that every cgroup and interface of the lab begins with. The control plane is
// started once per binary, on first use; runtimes and nodes are a test's own and
// end with it. Everything listens on loopback or on the lab's interface, on ports
// the kernel chose. SEXTANT_API_SERVER=1.37 chooses an API server and a controller
// manager of another minor.
//
// When the tests are over the lab is taken down and searched for: a process, a
// mount, a cgroup, an interface or a host port rule that is left makes the run
// fail. A run that was killed is cleaned up by the next one.
//
// Waiting is done by Eventually and nothing else. The parts are built by
// test/env/install.sh; a missing one is an error that says so, not a skip.
package harness

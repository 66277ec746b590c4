// Package resource says what the node has and who holds it.
//
// It owns the node's capacity, allocatable and pressure (feed resource.node),
// what each admitted pod holds (feed resource.pods), and the cgroups from
// kubepods down to the pods; those of containers are the runtime's.
//
// It promises that an admission is given once: a pod that was admitted is
// admitted again, whatever has changed since, and a pod that already runs is
// never refused. What is missing but will come is "not yet", with a reason.
// A pod's cgroup exists when Admit has answered, and is gone, or the item says
// why not, after Release.
//
// What a running pod asks to be changed of its resources (Resize) is judged here
// and nowhere else: allocated at once, or Deferred and judged again when something
// becomes free, or Infeasible. Its cgroup has room for the old and the new until
// podworker says that the containers have the new (Settle).
//
// What the node, its pods and their containers use is read from cgroups when
// somebody asks (Usage), at most once a second, and never by itself.
//
// It comes back from its checkpoint of allocations, and makes sure of every
// cgroup in it. A lost checkpoint costs nothing that runs: podworker asks again
// for each pod, as running.
package resource

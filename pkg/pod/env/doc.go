// SPDX-License-Identifier: Apache-2.0

// Package env builds the environment of a container.
//
// It owns the order (service variables, envFrom, env; the last one wins), the expansion
// of $(VAR), the names of service variables, values from ConfigMaps, Secrets, env files,
// pod fields and resources, and the words of the errors that a pod's owner reads in
// CreateContainerConfigError. It reads objects through two small interfaces and keeps
// nothing.
package env

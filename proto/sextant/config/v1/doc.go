// SPDX-License-Identifier: Apache-2.0

// Package configv1 is the contract of config: the pods this node should run, the
// objects they refer to, and what needs the node credential. Its feeds are listed
// in config.proto; the code beside that file is generated from it.
package configv1

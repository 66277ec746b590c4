// SPDX-License-Identifier: Apache-2.0

// Command etcd is the etcd server, built from its published module so that the
// tests need no package of a particular age.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }

// SPDX-License-Identifier: Apache-2.0

// Command mandocs writes the manual pages of the command line into a folder.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/sextant-node/sextant/cmd/sextant/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: mandocs DIR")
		os.Exit(2)
	}
	root := cli.Root()
	root.DisableAutoGenTag = true
	epoch := time.Unix(0, 0).UTC() // pages of one source are the same every day
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Sextant", Manual: "Sextant", Date: &epoch}, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "mandocs:", err)
		os.Exit(1)
	}
}

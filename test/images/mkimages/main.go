// SPDX-License-Identifier: Apache-2.0

// Command mkimages writes the local images as archives into a directory, one
// file per image named after it: pause.tar, hello.tar, busybox.tar.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sextant-node/sextant/test/images"
)

func main() {
	out := flag.String("o", "bin/images", "directory for the archives")
	source := flag.String("source", ".", "a directory inside the module")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: mkimages [-o DIR] [IMAGE...]    default images: pause and hello")
		flag.PrintDefaults()
	}
	flag.Parse()
	refs := flag.Args()
	if len(refs) == 0 {
		refs = []string{images.Pause, images.Hello}
	}
	if err := run(*out, *source, refs); err != nil {
		fmt.Fprintln(os.Stderr, "mkimages:", err)
		os.Exit(1)
	}
}

func run(out, source string, refs []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, ref := range refs {
		short, _, _ := strings.Cut(path.Base(ref), ":")
		file := filepath.Join(out, short+".tar")
		if err := (images.Builder{Source: source}).Save(ctx, ref, file); err != nil {
			return err
		}
		fmt.Printf("%s  %s\n", file, ref)
	}
	return nil
}

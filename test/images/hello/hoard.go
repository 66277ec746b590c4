// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
)

// hoards take what a node may be short of, in the background, and answer at once.
func hoards(mux *http.ServeMux) {
	for path, take := range map[string]func(r *http.Request, n int) error{
		"/fill":    func(r *http.Request, n int) error { return fill(r.FormValue("path"), int64(n)) },
		"/many":    func(r *http.Request, n int) error { return many(r.FormValue("path"), n) },
		"/threads": func(_ *http.Request, n int) error { threads(n); return nil },
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			n, err := strconv.Atoi(r.FormValue("n"))
			if err != nil || n < 0 {
				http.Error(w, "n: want a number", http.StatusBadRequest)
				return
			}
			go func() {
				if err := take(r, n); err != nil {
					fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
				}
			}()
			_, _ = fmt.Fprintf(w, "%d begun\n", n)
		})
	}
}

// fill makes a file of n bytes.
func fill(path string, n int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(f, latin1{}, n); err != nil {
		return err
	}
	return f.Close()
}

// threads starts n threads that stay.
func threads(n int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			runtime.LockOSThread()
			select {}
		})
	}
	all.Wait()
}

// SPDX-License-Identifier: Apache-2.0

// Command hello is the example and test workload. Without a subcommand it serves
// HTTP, and on request TCP and the gRPC health service, logs one line per
// request, and ends on SIGTERM unless told to ignore it.
//
//	GET  /              greeting with host name and start time
//	GET  /healthz       200 or 500; POST /healthz?ok=false breaks it
//	GET  /ready         the same for readiness
//	GET  /exit?code=N   ends the process with that code
//	GET  /env           environment as a JSON object
//	GET  /file?path=P   the content of a file, 404 if there is none
//	GET  /headers       request headers as a JSON object
//	GET  /burn?for=D    keeps a core busy for that duration
//	GET  /hold?bytes=N  keeps so much memory in use
//	GET  /fill?path=P&n=N, /many?path=P&n=N, /threads?n=N
//	                    begins to write N bytes into a file, to make N files in a
//	                    folder, to hold N threads
//	GET  /slow?for=D    answers after that duration
//	GET  /bytes?n=N     N bytes that are not UTF-8
//	GET  /redirect?to=U sends the client to that address
//
// The subcommands need no shell in the image: cat FILE, touch FILE, test FILE,
// exit CODE, sleep DURATION, echo WORDS, write FILE WORDS, get URL, bytes N, deep DIR N (folders in
// one another), many DIR N (files in a folder).
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		code, err := runTool(os.Args[1], os.Args[2:], os.Stdout)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}
	var o options
	flag.StringVar(&o.http, "http", ":8080", "address of the HTTP server")
	flag.StringVar(&o.grpc, "grpc", "", "address of the gRPC health service, none if empty")
	flag.StringVar(&o.tcp, "tcp", "", "address of a TCP server that says hello, none if empty")
	flag.BoolVar(&o.ignoreTerm, "ignore-term", false, "log SIGTERM and go on")
	flag.DurationVar(&o.termDelay, "term-delay", 0, "time between SIGTERM and the end")
	flag.BoolVar(&o.notReady, "not-ready", false, "start with readiness off")
	flag.BoolVar(&o.notHealthy, "not-healthy", false, "start with health off")
	flag.DurationVar(&o.startDelay, "start-delay", 0, "time before the servers listen")
	flag.DurationVar(&o.exitAfter, "exit-after", 0, "end by itself after this time, never if zero")
	flag.IntVar(&o.exitCode, "exit-code", 0, "code of that end")
	flag.DurationVar(&o.logEvery, "log-every", 0, "print a line at this interval, none if zero")
	flag.Parse()
	os.Exit(serve(o))
}

// runTool does one small thing and returns the exit code.
func runTool(name string, args []string, out io.Writer) (int, error) {
	if len(args) == 0 && name != "echo" {
		return 2, fmt.Errorf("%s needs an argument", name)
	}
	fail := func(err error) (int, error) {
		if err != nil {
			return 1, err
		}
		return 0, nil
	}
	switch name {
	case "cat":
		for _, f := range args {
			b, err := os.ReadFile(f)
			if err != nil {
				return 1, err
			}
			if _, err := out.Write(b); err != nil {
				return 1, err
			}
		}
		return 0, nil
	case "touch":
		return fail(os.WriteFile(args[0], nil, 0o644))
	case "test":
		_, err := os.Stat(args[0])
		return fail(err)
	case "echo":
		_, err := fmt.Fprintln(out, strings.Join(args, " "))
		return fail(err)
	case "write":
		return fail(os.WriteFile(args[0], []byte(strings.Join(args[1:], " ")), 0o644))
	case "exit":
		code, err := strconv.Atoi(args[0])
		if err != nil {
			return 2, err
		}
		return code, nil
	case "sleep":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			return 2, err
		}
		<-time.After(d)
		return 0, nil
	case "get":
		resp, err := http.Get(args[0])
		if err != nil {
			return 1, err
		}
		defer resp.Body.Close() //nolint:errcheck // read to its end below
		if _, err := io.Copy(out, resp.Body); err != nil {
			return 1, err
		}
		if resp.StatusCode >= http.StatusBadRequest {
			return 1, errors.New(resp.Status)
		}
		return 0, nil
	case "bytes":
		n, err := strconv.ParseInt(args[0], 10, 64)
		if err == nil {
			_, err = io.CopyN(out, latin1{}, n)
		}
		return fail(err)
	case "deep", "many":
		if len(args) < 2 {
			return 2, fmt.Errorf("%s needs a folder and a number", name)
		}
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return 2, err
		}
		return fail(map[string]func(string, int) error{"deep": deep, "many": many}[name](args[0], n))
	default:
		return 2, fmt.Errorf("no such tool: %s", name)
	}
}

// deep makes folders in one another, n of them: deeper than a path can say.
func deep(dir string, n int) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	for range n {
		if err := os.Mkdir("d", 0o755); err != nil {
			return err
		}
		if err := os.Chdir("d"); err != nil {
			return err
		}
	}
	return nil
}

// many makes n files in a folder of that name.
func many(dir string, n int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

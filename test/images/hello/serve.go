// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

type options struct {
	http, grpc, tcp                  string
	ignoreTerm, notReady, notHealthy bool
	startDelay, exitAfter, logEvery  time.Duration
	termDelay                        time.Duration
	exitCode                         int
}

// server is the state that requests can change.
type server struct {
	started        time.Time
	healthy, ready atomic.Bool
	grpcHealth     *health.Server
	exit           chan int
	held           atomic.Pointer[[]byte]
}

func say(format string, args ...any) {
	fmt.Printf("%s %s\n", time.Now().UTC().Format(time.RFC3339Nano), fmt.Sprintf(format, args...))
}

// serve runs until it is told to end and returns the exit code.
func serve(o options) int {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	s := &server{started: time.Now(), grpcHealth: health.NewServer(), exit: make(chan int, 1)}
	s.setHealthy(!o.notHealthy)
	s.ready.Store(!o.notReady)
	say("hello starts, pid %d", os.Getpid())

	listening := time.After(o.startDelay)
	var exitAfter, tick, term <-chan time.Time
	if o.exitAfter > 0 {
		exitAfter = time.After(o.exitAfter)
	}
	if o.logEvery > 0 {
		tick = time.Tick(o.logEvery)
	}
	for lines := 1; ; {
		select {
		case <-listening:
			if err := s.listen(o); err != nil {
				say("cannot serve: %v", err)
				return 1
			}
		case <-tick:
			say("line %d", lines)
			lines++
		case <-exitAfter:
			say("ends after %s with code %d", o.exitAfter, o.exitCode)
			return o.exitCode
		case code := <-s.exit:
			say("ends on request with code %d", code)
			return code
		case sig := <-signals:
			if o.ignoreTerm {
				say("got %s, ignored", sig)
				continue
			}
			say("got %s, ends", sig)
			term = time.After(o.termDelay)
		case <-term:
			return 0
		}
	}
}

// listen opens every server that was asked for; they end with the process.
func (s *server) listen(o options) error {
	httpListener, err := net.Listen("tcp", o.http)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	go func() { s.fail(srv.Serve(httpListener)) }()
	if o.grpc != "" {
		l, err := net.Listen("tcp", o.grpc)
		if err != nil {
			return err
		}
		g := grpc.NewServer()
		healthpb.RegisterHealthServer(g, s.grpcHealth)
		go func() { s.fail(g.Serve(l)) }()
	}
	if o.tcp != "" {
		l, err := net.Listen("tcp", o.tcp)
		if err != nil {
			return err
		}
		go func() { s.fail(serveTCP(l)) }()
	}
	say("serving on %s", httpListener.Addr())
	return nil
}

func (s *server) fail(err error) {
	say("server ended: %v", err)
	s.end(1)
}

func (s *server) end(code int) {
	select {
	case s.exit <- code:
	default: // ending already
	}
}

func serveTCP(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		_, _ = conn.Write([]byte("hello\n")) // a prober hangs up at once
		_ = conn.Close()
	}
}

func (s *server) setHealthy(ok bool) {
	s.healthy.Store(ok)
	status := healthpb.HealthCheckResponse_SERVING
	if !ok {
		status = healthpb.HealthCheckResponse_NOT_SERVING
	}
	s.grpcHealth.SetServingStatus("", status)
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		host, _ := os.Hostname()
		_, _ = fmt.Fprintf(w, "hello from %s, up since %s\n", host, s.started.UTC().Format(time.RFC3339))
	})
	mux.Handle("/healthz", toggle(s.healthy.Load, s.setHealthy))
	mux.Handle("/ready", toggle(s.ready.Load, s.ready.Store))
	mux.HandleFunc("/exit", func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(r.FormValue("code"))
		if err != nil {
			code = 0
		}
		_, _ = fmt.Fprintf(w, "ending with code %d\n", code)
		s.end(code)
	})
	mux.HandleFunc("/env", func(w http.ResponseWriter, _ *http.Request) {
		env := map[string]string{}
		for _, kv := range os.Environ() {
			k, v, _ := strings.Cut(kv, "=")
			env[k] = v
		}
		writeJSON(w, env)
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		b, err := os.ReadFile(r.FormValue("path"))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			http.Error(w, err.Error(), http.StatusNotFound)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			_, _ = w.Write(b)
		}
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, r.Header) })
	mux.HandleFunc("/burn", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.FormValue("for"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		rounds := 0
		for until := time.Now().Add(d); time.Now().Before(until) && r.Context().Err() == nil; rounds++ {
		}
		_, _ = fmt.Fprintf(w, "%d rounds\n", rounds)
	})
	mux.HandleFunc("/hold", func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.Atoi(r.FormValue("bytes"))
		if err != nil || size < 0 {
			http.Error(w, "bytes: want a number", http.StatusBadRequest)
			return
		}
		s.hold(size)
		_, _ = fmt.Fprintf(w, "%d bytes held\n", size)
	})
	hoards(mux)
	mux.HandleFunc("/bytes", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.FormValue("n"), 10, 64)
		if err != nil {
			http.Error(w, "n: want a number", http.StatusBadRequest)
			return
		}
		_, _ = io.CopyN(w, latin1{}, n) // the client hangs up when it has had enough
	})
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.FormValue("to"), http.StatusFound)
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.FormValue("for"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case <-time.After(d):
			_, _ = fmt.Fprintln(w, "at last")
		case <-r.Context().Done():
		}
	})
	return logged(mux)
}

// latin1 is text without end that is not UTF-8.
type latin1 struct{}

func (latin1) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 0xe9
	}
	return len(b), nil
}

// hold keeps so much memory in use, instead of what was held before.
func (s *server) hold(size int) {
	held := make([]byte, size)
	for i := 0; i < size; i += os.Getpagesize() {
		held[i] = 1
	}
	s.held.Store(&held)
}

// toggle serves a condition on GET and sets it on POST.
func toggle(get func() bool, set func(bool)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			ok, err := strconv.ParseBool(r.FormValue("ok"))
			if err != nil {
				http.Error(w, "ok: "+err.Error(), http.StatusBadRequest)
				return
			}
			set(ok)
		}
		if !get() {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
}

func logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		say("%s %s from %s", r.Method, r.URL.RequestURI(), r.RemoteAddr)
		next.ServeHTTP(w, r)
	})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client went away
}

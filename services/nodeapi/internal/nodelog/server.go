// SPDX-License-Identifier: Apache-2.0

// Package nodelog serves the node's logs: the files below /var/log, and the node log
// query, which asks the journal for services and falls back on files named like them
// (KEP-2258).
//
// It owns nothing. It promises that no path, link or name leads out of the log folder; that
// only plain files and folders are opened; that only journalctl is executed, and nothing
// that a caller sends becomes an option of it; and that a query ends within its deadline.
// What the process may not read is forbidden.
package nodelog

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// queryLimit is how long a query may take (kubelet: 30 s).
	queryLimit = 30 * time.Second
	// killDelay bounds the wait for pipes of a journalctl that was killed.
	killDelay = time.Second
)

// Server serves a folder; the prefix of the path has been stripped.
type Server struct {
	tree Tree
	// files is the standard library's: listings, ranges, redirects, as in the kubelet.
	files http.Handler
}

// New makes a server of a folder.
func New(dir string) *Server {
	tree := Tree{dir}
	return &Server{tree: tree, files: http.FileServerFS(tree)}
}

// Files answers with a file or a listing.
func (s *Server) Files(w http.ResponseWriter, r *http.Request) { s.files.ServeHTTP(w, r) }

// Query answers a query; if the request is none, with a file or a listing.
func (s *Server) Query(w http.ResponseWriter, r *http.Request) {
	query, errs := Parse(r.URL.Query())
	if len(errs) > 0 {
		http.Error(w, errs.ToAggregate().Error(), http.StatusBadRequest)
		return
	}
	if query == nil {
		s.Files(w, r)
		return
	}
	if r.URL.Path != "" && r.URL.Path != "/" {
		http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
		return
	}
	if errs := append(query.Validate(), s.missing(query)...); len(errs) > 0 {
		http.Error(w, errs.ToAggregate().Error(), http.StatusNotAcceptable)
		return
	}
	if len(query.Files) == 1 {
		file := r.Clone(r.Context())
		file.URL.Path = filepath.ToSlash(query.Files[0])
		s.Files(w, file)
		return
	}
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	var out io.Writer = w
	if r.Header.Get("Accept-Encoding") == "gzip" { // exactly, as the kubelet
		w.Header().Set("Content-Encoding", "gzip")
		zipped, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is one
		defer zipped.Close()                                //nolint:errcheck // a caller that went away
		out = zipped
	}
	ctx, cancel := context.WithTimeout(r.Context(), queryLimit)
	defer cancel()
	s.copy(ctx, out, query)
}

// missing is the error of a file that cannot be opened.
func (s *Server) missing(q *Query) field.ErrorList {
	if len(q.Files) != 1 || !q.empty() || len(q.Services) > 0 {
		return nil
	}
	f, err := s.tree.Open(strings.TrimPrefix(path.Clean("/"+q.Files[0]), "/"))
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("query"), q.Files, err.Error())}
	}
	_ = f.Close() // read only
	return nil
}

// copy writes the logs of services. Errors are lines of the answer: its status has been
// sent.
func (s *Server) copy(ctx context.Context, w io.Writer, q *Query) {
	inJournal, others := s.split(ctx, q.Services)
	if len(inJournal) > 0 {
		s.journal(ctx, w, q, inJournal)
	}
	switch {
	case len(others) == 0:
	case !q.empty():
		say(w, "\noptions present and query resolved to log files for %v\ntry without specifying options\n", others)
	case ctx.Err() != nil:
		say(w, "\ncontext error: %v\n", ctx.Err())
	default:
		for _, name := range others {
			s.logFile(ctx, w, name)
		}
	}
}

func say(w io.Writer, format string, values ...any) {
	_, _ = fmt.Fprintf(w, format, values...) // a caller that went away
}

// command is a call of journalctl, which ends with ctx.
func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "journalctl", args...)
	cmd.WaitDelay = killDelay
	return cmd
}

// split separates the services that the journal has from the others.
func (s *Server) split(ctx context.Context, services []string) (known, others []string) {
	units, err := command(ctx, "--field", "_SYSTEMD_UNIT").CombinedOutput()
	for _, name := range services {
		if err == nil && strings.Contains(string(units), name+".service") {
			known = append(known, name)
		} else {
			others = append(others, name)
		}
	}
	return known, others
}

func (s *Server) journal(ctx context.Context, w io.Writer, q *Query, services []string) {
	cmd := command(ctx, q.arguments(services)...)
	cmd.Stdout, cmd.Stderr = w, w
	err := cmd.Run()
	var ended *exec.ExitError // it has said why
	if err != nil && !errors.As(err, &ended) && (q.Boot == nil || *q.Boot == 0) {
		say(w, "\nerror: journal output not available\n")
	}
}

// logFile writes the first that exists of the files that a service may write.
func (s *Server) logFile(ctx context.Context, w io.Writer, name string) {
	for _, file := range []string{name, name + ".log", name + "/" + name + ".log"} {
		err := s.write(ctx, w, file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			say(w, "\nerror getting log for %s: %v\n", name, err)
		}
		return
	}
	say(w, "\nlog not found for %s\n", name)
}

func (s *Server) write(ctx context.Context, w io.Writer, file string) error {
	f, err := s.tree.Open(file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fs.ErrNotExist // the log may be inside
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() }) // ends the copy
	defer stop()
	_, err = io.Copy(w, f)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

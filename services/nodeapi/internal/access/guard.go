// SPDX-License-Identifier: Apache-2.0

package access

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/services/nodeapi/internal/auth"
	"github.com/sextant-node/sextant/services/nodeapi/internal/callerlog"
	"github.com/sextant-node/sextant/services/nodeapi/internal/listen"
	"github.com/sextant-node/sextant/services/nodeapi/internal/reply"
)

// guard serves the requests whose callers are authenticated and authorized.
type guard struct {
	gate    *auth.Gate
	refused prometheus.Counter
	callers *callerlog.Log
	log     *slog.Logger
}

// around serves by next the requests that it lets through. A path that mux does not have
// is 404 for every caller, as in the kubelet.
func (g *guard) around(mux *http.ServeMux, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" && !below(r.URL.Path, webServices) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			deny(w, r, http.StatusNotFound, "404 page not found\n")
			return
		}
		user, ok := g.admit(w, r)
		if !ok {
			return
		}
		listen.Authorized(r)
		began := time.Now()
		next.ServeHTTP(w, r.WithContext(auth.WithUser(r.Context(), user)))
		g.log.Debug("request", "user", user.Name, "method", r.Method, "path", callerlog.Cut(r.URL.Path), "took", time.Since(began).String())
	})
}

// admit authenticates and authorizes a request. If it returns false it has answered.
func (g *guard) admit(w http.ResponseWriter, r *http.Request) (user auth.User, ok bool) {
	user, err := g.gate.Identify(r)
	switch {
	case errors.Is(err, auth.ErrBusy):
		g.busy(w, r)
		return user, false
	case err != nil:
		g.callers.Log(r.Context(), level(err), r.RemoteAddr, "caller not identified", "path", r.URL.Path, service.KeyError, err.Error())
		deny(w, r, http.StatusUnauthorized, auth.ErrUnauthenticated.Error())
		return user, false
	}
	allowed, reason, err := g.gate.Authorize(r, user)
	switch {
	case errors.Is(err, auth.ErrBusy):
		g.busy(w, r)
	case err != nil:
		g.callers.Log(r.Context(), slog.LevelWarn, r.RemoteAddr, "caller not authorized", "user", user.Name, "path", r.URL.Path, service.KeyError, err.Error())
		deny(w, r, http.StatusInternalServerError, reason)
	case !allowed:
		deny(w, r, http.StatusForbidden, reason)
	}
	return user, allowed && err == nil
}

// busy answers that too many requests wait for a review.
func (g *guard) busy(w http.ResponseWriter, r *http.Request) {
	g.refused.Inc()
	w.Header().Set("Retry-After", "1")
	deny(w, r, http.StatusTooManyRequests, auth.ErrBusy.Error())
}

// level is debug for callers without credentials, which are common, and warning for
// credentials that fail.
func level(err error) slog.Level {
	if err == auth.ErrUnauthenticated { //nolint:errorlint // wrapped means there is more to it
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// denyTimeout bounds how long a caller takes to read why it is denied.
const denyTimeout = 5 * time.Second

// deny answers without waiting for the rest of the request. When it returns the answer has
// been sent, or never will be.
func deny(w http.ResponseWriter, r *http.Request, status int, text string) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Now().Add(denyTimeout)) // a writer without deadlines has the server's
	reply.Text(w, status, text)
	_ = out.Flush() // the caller may have left
}

// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// Serve answers over HTTP and writes a kubeconfig for it into folder. The caller
// closes the server.
func (c *Cluster) Serve(folder string) (server *httptest.Server, kubeconfig string, err error) {
	server = httptest.NewServer(c.Handler())
	kubeconfig = filepath.Join(folder, "kubeconfig")
	return server, kubeconfig, WriteKubeconfig(kubeconfig, server.URL)
}

// ServeTLS answers over HTTP/2, one connection for all requests of a client as at a real
// API server, until the caller closes the server.
func (c *Cluster) ServeTLS() *httptest.Server {
	server := httptest.NewUnstartedServer(c.Handler())
	server.EnableHTTP2 = true
	server.StartTLS()
	return server
}

// WriteKubeconfig writes a kubeconfig for an API server without authentication.
func WriteKubeconfig(path, url string) error {
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\nusers: [{name: u, user: {}}]\n", url)
	return os.WriteFile(path, []byte(text), 0o600)
}

// Handler answers the requests that write, and those for Nodes, CSINodes and Leases.
func (c *Cluster) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, do func(r *http.Request, body []byte) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			var out any
			if err == nil {
				out, err = do(r, body)
			}
			answer(w, out, err)
		})
	}
	handle("POST /api/v1/namespaces/{ns}/pods", func(r *http.Request, body []byte) (any, error) {
		p := &v1.Pod{}
		if err := decode(body, p); err != nil {
			return nil, err
		}
		return c.CreatePod(r.Context(), p)
	})
	handle("PATCH /api/v1/namespaces/{ns}/pods/{name}/status", func(r *http.Request, body []byte) (any, error) {
		return c.PatchStatus(r.Context(), r.PathValue("ns"), r.PathValue("name"), body)
	})
	handle("DELETE /api/v1/namespaces/{ns}/pods/{name}", func(r *http.Request, body []byte) (any, error) {
		o := &metav1.DeleteOptions{}
		if err := decode(body, o); err != nil {
			return nil, err
		}
		if o.GracePeriodSeconds == nil || *o.GracePeriodSeconds != 0 || o.Preconditions == nil || o.Preconditions.UID == nil {
			return nil, apierrors.NewBadRequest("final delete without grace 0 or UID")
		}
		return &metav1.Status{Status: metav1.StatusSuccess}, c.DeletePod(r.Context(), r.PathValue("ns"), r.PathValue("name"), *o.Preconditions.UID)
	})
	handle("POST /api/v1/nodes", func(r *http.Request, body []byte) (any, error) {
		n := &v1.Node{}
		if err := decode(body, n); err != nil {
			return nil, err
		}
		return c.CreateNode(r.Context(), n)
	})
	handle("GET /api/v1/nodes/{name}", func(r *http.Request, _ []byte) (any, error) {
		return c.GetNode(r.Context(), r.PathValue("name"))
	})
	handle("PATCH /api/v1/nodes/{name}/status", func(r *http.Request, body []byte) (any, error) {
		return c.PatchNodeStatus(r.Context(), r.PathValue("name"), body)
	})
	handle("GET /apis/storage.k8s.io/v1/csinodes/{name}", func(r *http.Request, _ []byte) (any, error) {
		return c.csinode(r.Context(), "get", r.PathValue("name"), nil)
	})
	handle("POST /apis/storage.k8s.io/v1/csinodes", func(r *http.Request, body []byte) (any, error) {
		n := &storagev1.CSINode{}
		if err := decode(body, n); err != nil {
			return nil, err
		}
		return c.csinode(r.Context(), "create", n.Name, n)
	})
	handle("POST /api/v1/namespaces/{ns}/events", func(r *http.Request, body []byte) (any, error) {
		e := &v1.Event{}
		if err := decode(body, e); err != nil {
			return nil, err
		}
		return c.CreateEvent(r.Context(), e)
	})
	handle("PATCH /api/v1/namespaces/{ns}/events/{name}", func(r *http.Request, body []byte) (any, error) {
		return c.PatchEvent(r.Context(), r.PathValue("ns"), r.PathValue("name"), body)
	})
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	for method, verb := range map[string]string{"GET": "get", "PUT": "update"} {
		handle(method+" "+leases+"/{name}", func(r *http.Request, body []byte) (any, error) {
			l := &coordinationv1.Lease{}
			if verb == "update" {
				if err := decode(body, l); err != nil {
					return nil, err
				}
			}
			return c.lease(r.Context(), verb, r.PathValue("name"), l)
		})
	}
	handle("POST "+leases, func(r *http.Request, body []byte) (any, error) {
		l := &coordinationv1.Lease{}
		if err := decode(body, l); err != nil {
			return nil, err
		}
		return c.lease(r.Context(), "create", l.Name, l)
	})
	handle("/", func(r *http.Request, _ []byte) (any, error) {
		end, err := c.begin(r.Context(), r.Method, r.URL.Path, "", nil)
		defer end()
		if err == nil {
			err = apierrors.NewBadRequest("not served here: " + r.Method + " " + r.URL.Path)
		}
		return nil, err
	})
	return mux
}

func decode(body []byte, into runtime.Object) error {
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// answer writes JSON, which every client accepts; an error without a status drops the
// connection.
func answer(w http.ResponseWriter, out any, err error) {
	code := http.StatusOK
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			panic(http.ErrAbortHandler)
		}
		s := status.Status()
		s.Kind, s.APIVersion = "Status", "v1"
		out, code = &s, int(s.Code)
	}
	switch o := out.(type) {
	case *v1.Pod:
		o.Kind, o.APIVersion = "Pod", "v1"
	case *v1.Node:
		o.Kind, o.APIVersion = "Node", "v1"
	case *storagev1.CSINode:
		o.Kind, o.APIVersion = "CSINode", "storage.k8s.io/v1"
	case *v1.Event:
		o.Kind, o.APIVersion = "Event", "v1"
	case *coordinationv1.Lease:
		o.Kind, o.APIVersion = "Lease", "coordination.k8s.io/v1"
	case *metav1.Status:
		o.Kind, o.APIVersion = "Status", "v1"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(out); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// SPDX-License-Identifier: Apache-2.0

package apianswer

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestOf asks servers with the client that services use.
func TestOf(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"%s","code":%d}`
	for name, c := range map[string]struct {
		code       int
		kind, body string
		answered   bool
		notFound   bool
	}{
		"the API server: no such pod":       {404, "application/json", fmt.Sprintf(status, "NotFound", 404), true, true},
		"the API server: forbidden":         {403, "application/json", fmt.Sprintf(status, "Forbidden", 403), true, false},
		"a load balancer's page":            {404, "text/html", "<html>default backend - 404</html>", false, false},
		"a load balancer's text":            {404, "text/plain; charset=utf-8", "404 page not found\n", false, false},
		"a gateway's JSON":                  {404, "application/json", `{"message": "no route"}`, false, false},
		"a firewall's page":                 {403, "text/html", "<html>blocked</html>", false, false},
		"a load balancer without a backend": {502, "text/html", "<html>bad gateway</html>", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.WriteHeader(c.code)
				_, _ = w.Write([]byte(c.body))
			}))
			defer server.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{})
			err = fmt.Errorf("pod: %w", err)
			if s, answered := Of(err); answered != c.answered || answered && int(s.Code) != c.code {
				t.Errorf("answered %v, %d: %v", answered, s.Code, err)
			}
			if NotFound(err) != c.notFound {
				t.Errorf("not found %v: %v", !c.notFound, err)
			}
		})
	}
	for _, err := range []error{nil, errors.New("connection refused")} {
		if _, answered := Of(err); answered || NotFound(err) {
			t.Errorf("%v is an answer", err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package figures

import (
	"bufio"
	"encoding/json"
	"io"
	"time"
)

// Request is a finished request in the API server's audit log (audit.k8s.io/v1).
type Request struct {
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	Stage     string `json:"stage"`
	Verb      string `json:"verb"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Received time.Time `json:"requestReceivedTimestamp"`
	Answered time.Time `json:"stageTimestamp"`
}

// Kind is what was asked, "patch pods/status".
func (r Request) Kind() string {
	what := r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		what += "/" + r.ObjectRef.Subresource
	}
	return r.Verb + " " + what
}

// AboutNode reports whether a request is about the node and not about its pods.
func (r Request) AboutNode() bool {
	switch r.ObjectRef.Resource {
	case "nodes", "leases", "csinodes", "csidrivers", "runtimeclasses", "services", "certificatesigningrequests", "resourceslices", "tokenreviews", "subjectaccessreviews", "":
		return true
	}
	return false
}

// ReadAudit reads the requests of one user. A line that is cut off, because the
// server writes it just now, is passed over.
func ReadAudit(r io.Reader, user string) ([]Request, error) {
	var all []Request
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var q Request
		if err := json.Unmarshal(lines.Bytes(), &q); err == nil && q.User.Username == user {
			all = append(all, q)
		}
	}
	return all, lines.Err()
}

// Count is how many requests of each kind were received from begin until end, and
// how many in all. A watch counts once, when it begins.
func Count(all []Request, begin, end time.Time, wanted func(Request) bool) (kinds map[string]float64, sum float64) {
	kinds = map[string]float64{}
	for _, q := range all {
		opened := q.Verb == "watch" && q.Stage == "ResponseStarted"
		if q.Received.Before(begin) || !q.Received.Before(end) || !wanted(q) || !opened && (q.Verb == "watch" || q.Stage != "ResponseComplete") {
			continue
		}
		kinds[q.Kind()]++
		sum++
	}
	return kinds, sum
}

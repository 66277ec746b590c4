// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"net/url"
	"testing"
	"time"

	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/test/fuzzing"
)

// FuzzLogOptions: a query of a caller is refused as the kubelet does, or asks podworker for
// something that the API's rules allow.
func FuzzLogOptions(f *testing.F) {
	for _, q := range []string{
		"", "follow=1&previous=true&timestamps=no", "tailLines=5&limitBytes=1", "tail=all&tailLines=3", "tail=2", "sinceSeconds=0", "sinceSeconds=9223372036854775807", "limitBytes=-1",
		"sinceTime=2026-01-01T00:00:00Z", "sinceTime=9999-12-31T23:59:59-24:00", "sinceTime=", "stream=Stdout&tailLines=1", "stream=All", "stream=x", "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", "tailLines=1e3",
	} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		var req *podworkerv1.ContainerLogsRequest
		fuzzing.Allocates(t, 512<<10+100*uint64(len(query)), func() {
			fuzzing.Spends(t, time.Second, func() { req, err = request(q, true) })
		})
		if err != nil {
			if err != errQuery && err != errOptions || req != nil {
				t.Errorf("%q: %v, %v", query, req, err)
			}
			return
		}
		if problem := problemOf(req); problem != "" {
			t.Errorf("%q asks podworker for %s: %v", query, problem, req)
		}
	})
}

// problemOf is what the API's rules for PodLogOptions forbid in a request.
func problemOf(req *podworkerv1.ContainerLogsRequest) string {
	switch {
	case req.TailLines != nil && req.GetTailLines() < 0:
		return "tailLines"
	case req.LimitBytes != nil && req.GetLimitBytes() < 1:
		return "limitBytes"
	case req.SinceSeconds != nil && (req.GetSinceSeconds() < 1 || req.SinceTime != nil):
		return "sinceSeconds"
	case req.GetStream() != "" && req.GetStream() != "Stdout" && req.GetStream() != "Stderr", req.GetStream() != "" && req.TailLines != nil:
		return "stream"
	}
	return ""
}

package nodeapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
)

// The kubelet's answers to options it cannot read or cannot honour.
var (
	errLogQuery   = &refusal{http.StatusBadRequest, `{"message": "Unable to decode query."}`}
	errLogOptions = &refusal{http.StatusUnprocessableEntity, `{"message": "Invalid request."}`}
)

// logOptions reads v1.PodLogOptions from a query by Kubernetes' conversions:
// the first value of a name counts, any word but "false" and "0" is true, and
// names that are not known do not matter.
func logOptions(q url.Values) (*v1.PodLogOptions, error) {
	o := &v1.PodLogOptions{}
	tail := q["tailLines"]
	// The old name comes first; "all" is the default.
	switch old := q.Get("tail"); old {
	case "":
	case "all":
		tail = nil
	default:
		tail = []string{old}
	}
	given := func(name string, convert func([]string) error) error {
		values := q[name]
		if len(values) == 0 {
			return nil
		}
		return convert(values)
	}
	number := func(into **int64) func([]string) error {
		return func(values []string) error { return runtime.Convert_Slice_string_To_Pointer_int64(&values, into, nil) }
	}
	truth := func(into *bool) func([]string) error {
		return func(values []string) error { return runtime.Convert_Slice_string_To_bool(&values, into, nil) }
	}
	err := errors.Join(
		given("follow", truth(&o.Follow)), given("previous", truth(&o.Previous)), given("timestamps", truth(&o.Timestamps)),
		given("sinceSeconds", number(&o.SinceSeconds)), given("limitBytes", number(&o.LimitBytes)), number(&o.TailLines)(tail),
		given("sinceTime", func(values []string) error {
			return metav1.Convert_Slice_string_To_Pointer_v1_Time(&values, &o.SinceTime, nil)
		}),
	)
	if err != nil {
		return nil, errLogQuery
	}
	if streams := q["stream"]; len(streams) > 0 {
		o.Stream = &streams[0]
	}
	if !validLogOptions(o) {
		return nil, errLogOptions
	}
	return o, nil
}

// validLogOptions are the API's rules for PodLogOptions.
func validLogOptions(o *v1.PodLogOptions) bool {
	switch {
	case o.TailLines != nil && *o.TailLines < 0,
		o.LimitBytes != nil && *o.LimitBytes < 1,
		o.SinceSeconds != nil && o.SinceTime != nil,
		o.SinceSeconds != nil && *o.SinceSeconds < 1:
		return false
	case o.Stream == nil, *o.Stream == v1.LogStreamAll:
		return true
	case *o.Stream == v1.LogStreamStdout, *o.Stream == v1.LogStreamStderr:
		return o.TailLines == nil // not together, for now
	}
	return false
}

// streamOf is the choice of streams; all but All need the feature gate
// PodLogsQuerySplitStreams.
func streamOf(o *v1.PodLogOptions, split bool) (string, error) {
	switch {
	case o.Stream == nil, *o.Stream == v1.LogStreamAll:
		return "", nil
	case split:
		return *o.Stream, nil
	}
	return "", &refusal{http.StatusBadRequest, fmt.Sprintf(
		"unable to return the given log stream: %q. Please enable PodLogsQuerySplitStreams feature gate in kubelet", *o.Stream)}
}

// logRequest is what podworker is asked.
func logRequest(o *v1.PodLogOptions) *podworkerv1.ContainerLogsRequest {
	req := &podworkerv1.ContainerLogsRequest{
		Follow: o.Follow, Previous: o.Previous, Timestamps: o.Timestamps,
		SinceSeconds: o.SinceSeconds, TailLines: o.TailLines, LimitBytes: o.LimitBytes,
	}
	if o.SinceTime != nil {
		req.SinceTime = timestamppb.New(o.SinceTime.Time)
	}
	return req
}

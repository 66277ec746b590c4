// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"errors"
	"net/http"
	"net/url"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	podworkerv1 "github.com/sextant-node/sextant/proto/sextant/podworker/v1"
	"github.com/sextant-node/sextant/services/nodeapi/internal/reply"
)

// The kubelet's answers to options that cannot be read or are not valid.
var (
	errQuery   = reply.Errorf(http.StatusBadRequest, `{"message": "Unable to decode query."}`)
	errOptions = reply.Errorf(http.StatusUnprocessableEntity, `{"message": "Invalid request."}`)
)

// request makes of a query what podworker is asked. split: streams other than All may be
// chosen (feature gate PodLogsQuerySplitStreams).
func request(q url.Values, split bool) (*podworkerv1.ContainerLogsRequest, error) {
	o, err := decode(q)
	if err != nil {
		return nil, errQuery
	}
	if !valid(o) {
		return nil, errOptions
	}
	req := &podworkerv1.ContainerLogsRequest{
		Follow: o.Follow, Previous: o.Previous, Timestamps: o.Timestamps,
		SinceSeconds: o.SinceSeconds, TailLines: o.TailLines, LimitBytes: o.LimitBytes,
	}
	if o.SinceTime != nil {
		req.SinceTime = timestamppb.New(o.SinceTime.Time)
	}
	switch {
	case o.Stream == nil, *o.Stream == v1.LogStreamAll:
	case !split:
		return nil, reply.Errorf(http.StatusBadRequest,
			"unable to return the given log stream: %q. Please enable PodLogsQuerySplitStreams feature gate in kubelet", *o.Stream)
	default:
		req.Stream = *o.Stream
	}
	return req, nil
}

// decode reads v1.PodLogOptions by Kubernetes' conversions: the first value of a name
// counts, any word but "false" and "0" is true, and unknown names do not matter.
func decode(q url.Values) (*v1.PodLogOptions, error) {
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
	number := func(values []string, into **int64) error {
		return runtime.Convert_Slice_string_To_Pointer_int64(&values, into, nil)
	}
	truth := func(values []string, into *bool) error {
		return runtime.Convert_Slice_string_To_bool(&values, into, nil)
	}
	var since *[]string
	if values := q["sinceTime"]; len(values) > 0 {
		since = &values
	}
	if streams := q["stream"]; len(streams) > 0 {
		o.Stream = &streams[0]
	}
	return o, errors.Join(
		truth(q["follow"], &o.Follow), truth(q["previous"], &o.Previous), truth(q["timestamps"], &o.Timestamps),
		number(q["sinceSeconds"], &o.SinceSeconds), number(q["limitBytes"], &o.LimitBytes), number(tail, &o.TailLines),
		metav1.Convert_Slice_string_To_Pointer_v1_Time(since, &o.SinceTime, nil),
	)
}

// valid are the API's rules for PodLogOptions.
func valid(o *v1.PodLogOptions) bool {
	switch {
	case o.TailLines != nil && *o.TailLines < 0,
		o.LimitBytes != nil && *o.LimitBytes < 1,
		o.SinceSeconds != nil && o.SinceTime != nil,
		o.SinceSeconds != nil && *o.SinceSeconds < 1:
		return false
	case o.Stream == nil, *o.Stream == v1.LogStreamAll:
		return true
	case *o.Stream == v1.LogStreamStdout, *o.Stream == v1.LogStreamStderr:
		return o.TailLines == nil // not both, for now
	}
	return false
}

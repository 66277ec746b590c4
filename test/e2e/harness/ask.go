// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Memory is that of this machine, in bytes.
func Memory(t testing.TB) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	var kib int64
	if err == nil {
		_, err = fmt.Sscanf(string(text), "MemTotal: %d kB", &kib)
	}
	if err != nil {
		t.Fatalf("/proc/meminfo: %v", err)
	}
	return kib << 10
}

// answerIn is how long an answer is waited for: no packet says that the network of a pod
// has gone with it.
const answerIn = 10 * time.Second

// Ask tells a pod of the hello image what to take. The node may end it before it has
// answered, which is no error.
func Ask(ctx context.Context, pod *corev1.Pod, path string) error {
	limited, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	asked := false
	traced := httptrace.WithClientTrace(limited, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { asked = true }})
	req, err := http.NewRequestWithContext(traced, http.MethodGet, "http://"+pod.Status.PodIP+":8080"+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	ended := errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET)
	if ended || err != nil && asked && limited.Err() != nil && ctx.Err() == nil {
		return nil
	}
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.Join(errors.New(resp.Status), resp.Body.Close())
	}
	return resp.Body.Close()
}

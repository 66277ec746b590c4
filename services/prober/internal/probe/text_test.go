// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/services/prober/internal/probe"
	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

const most = 10 << 10 // bytes of a message

// words are what containers may answer, and how it reads.
var words = []struct{ name, said, read string }{
	{"text", "ok ✓", "ok ✓"},
	{"Latin-1", "caf\xe9", "caf\uFFFD"},
	{"gzip", "\x1f\x8b\x08\x00", "\x1f\uFFFD\x08\x00"},
	{"as long as may be", strings.Repeat("a", most), strings.Repeat("a", most)},
	{"one more", strings.Repeat("a", most+1), strings.Repeat("a", most)},
	{"cut within a character", strings.Repeat("a", most-1) + strings.Repeat("é", 10), strings.Repeat("a", most-1)},
	{"ends with a character", strings.Repeat("a", most-2) + strings.Repeat("é", 10), strings.Repeat("a", most-2) + "é"},
	{"longer when it is text", strings.Repeat("a\xe9", most), ""},
	{"no character begins", strings.Repeat("\x80", 2*most), "\uFFFD"},
}

// reads judges all that an outcome says.
func reads(t *testing.T, o probe.Outcome, want string) {
	t.Helper()
	for what, text := range map[string]string{"message": o.Message, "warning": o.Warning, "error": o.Error} {
		if !utf8.ValidString(text) || len(text) > most {
			t.Errorf("the %s has %d bytes, UTF-8: %t", what, len(text), utf8.ValidString(text))
		}
	}
	if want != "" && o.Message != want {
		t.Errorf("message of %d bytes ends in %q, want %d bytes", len(o.Message), o.Message[max(0, len(o.Message)-10):], len(want))
	}
}

func httpGet(port int) v1.Probe {
	return v1.Probe{TimeoutSeconds: 60, ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(int32(port))}}}
}

func TestBodyIsText(t *testing.T) {
	subject := probe.Subject{PodIP: loopback, Container: &v1.Container{}}
	for _, w := range words {
		for code, result := range map[int]schedule.Result{200: schedule.Success, 302: schedule.Success, 500: schedule.Failure} {
			t.Run(fmt.Sprint(w.name, " ", code), func(t *testing.T) {
				server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
					rw.Header().Set("Location", "http://elsewhere.invalid/")
					rw.WriteHeader(code)
					if _, err := rw.Write([]byte(w.said)); err != nil {
						t.Error(err)
					}
				}))
				defer server.Close()
				o := (&probe.Prober{}).Run(t.Context(), httpGet(portOf(t, server.Listener.Addr())), subject)
				want := w.read
				if code == 500 {
					want = "HTTP probe failed with statuscode: 500"
				}
				if reads(t, o, want); o.Result != result {
					t.Errorf("%v, want %v", o.Result, result)
				}
			})
		}
	}
}

// TestNonsenseIsText: a server that does not speak HTTP, or sends elsewhere in bytes that
// are no text.
func TestNonsenseIsText(t *testing.T) {
	for _, answer := range []string{
		"\xff\xfe\xfd\r\n\r\n", "HTTP/1.1 caf\xe9\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: http://caf\xe9:x/\r\n\r\n",
		"HTTP/1.1 302 Found\r\nLocation: \xff" + strings.Repeat("x", 2*most) + "\r\n\r\n",
	} {
		listener, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					_, _ = conn.Write([]byte(answer)) // the probe may have gone
				}
				_ = conn.Close()
			}
		}()
		o := (&probe.Prober{}).Run(t.Context(), httpGet(portOf(t, listener.Addr())), probe.Subject{PodIP: loopback, Container: &v1.Container{}})
		if reads(t, o, ""); o.Result != schedule.Failure {
			t.Errorf("%q is %v", answer[:20], o.Result)
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestEndlessAnswers: of headers, and of an answer by gRPC, no more is kept than any server
// needs.
func TestEndlessAnswers(t *testing.T) {
	subject := probe.Subject{PodIP: loopback, Container: &v1.Container{}}
	headers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("A", strings.Repeat("a", 1<<20)) })
	plain, secure := httptest.NewServer(headers), httptest.NewUnstartedServer(headers)
	defer plain.Close()
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	over := httpGet(portOf(t, secure.Listener.Addr()))
	over.HTTPGet.Scheme = v1.URISchemeHTTPS
	for name, spec := range map[string]v1.Probe{"HTTP": httpGet(portOf(t, plain.Listener.Addr())), "HTTP/2": over} {
		if o := (&probe.Prober{}).Run(t.Context(), spec, subject); o.Result != schedule.Failure {
			t.Errorf("%s: %v %.200q", name, o.Result, o.Message)
		}
	}
	long := &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}
	long.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 100, protowire.BytesType), make([]byte, 1<<20)))
	for name, answer := range map[string]func(grpc.ServerStream) error{
		"a header of gRPC": func(s grpc.ServerStream) error {
			return errors.Join(s.SendHeader(metadata.Pairs("a", strings.Repeat("a", 1<<20))), s.SendMsg(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}))
		},
		"an answer by gRPC": func(s grpc.ServerStream) error { return s.SendMsg(long) },
	} {
		listener, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return answer(s) }))
		go func() { _ = server.Serve(listener) }()
		spec := v1.Probe{TimeoutSeconds: 60, ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(portOf(t, listener.Addr()))}}}
		if o := (&probe.Prober{}).Run(t.Context(), spec, subject); o.Result != schedule.Failure {
			t.Errorf("%s: %v %.200q", name, o.Result, o.Message)
		}
		server.Stop()
	}
}

// runtime answers every command so.
type runtime struct {
	runtimeapi.RuntimeServiceClient
	answer *runtimeapi.ExecSyncResponse
	err    error
}

func (r runtime) ExecSync(context.Context, *runtimeapi.ExecSyncRequest, ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	return r.answer, r.err
}

func TestOutputIsText(t *testing.T) {
	spec := v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}}}
	for _, w := range words {
		t.Run(w.name, func(t *testing.T) {
			half := len(w.said) / 2
			for code, result := range map[int32]schedule.Result{0: schedule.Success, 1: schedule.Failure} {
				p := &probe.Prober{Runtime: runtime{answer: &runtimeapi.ExecSyncResponse{
					Stdout: []byte(w.said[:half]), Stderr: []byte(w.said[half:]), ExitCode: code,
				}}}
				o := p.Run(t.Context(), spec, probe.Subject{})
				if reads(t, o, w.read); o.Result != result {
					t.Errorf("%v, want %v", o.Result, result)
				}
			}
			p := &probe.Prober{Runtime: runtime{err: status.Error(codes.Unknown, w.said)}}
			if o := p.Run(t.Context(), spec, probe.Subject{}); o.Error == "" {
				t.Error("no error")
			} else {
				reads(t, o, "")
			}
		})
	}
}

func TestStatusOfAServerIsText(t *testing.T) {
	for _, w := range words {
		t.Run(w.name, func(t *testing.T) {
			listener, err := net.Listen("tcp", loopback+":0")
			if err != nil {
				t.Fatal(err)
			}
			server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(codes.Internal, w.said) }))
			go func() { _ = server.Serve(listener) }()
			defer server.Stop()
			spec := v1.Probe{TimeoutSeconds: 60, ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(portOf(t, listener.Addr()))}}}
			o := (&probe.Prober{}).Run(t.Context(), spec, probe.Subject{PodIP: loopback})
			if reads(t, o, ""); o.Result != schedule.Failure {
				t.Errorf("%v", o.Result)
			}
		})
	}
}

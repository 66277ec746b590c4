// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/config/internal/merge"
	"github.com/sextant-node/sextant/test/apitest"
)

func boundPod(name, uid, node string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)},
		Spec:       v1.PodSpec{NodeName: node},
	}
}

type rig struct {
	*Source
	news   chan struct{}
	client kubernetes.Interface
}

// patience of sources in tests.
const patience = 20 * time.Millisecond

func newRig(t *testing.T, s *apitest.Server) *rig {
	r := &rig{news: make(chan struct{}, 1)}
	r.Source = New(Config{Patience: patience, Log: slog.New(slog.DiscardHandler), Changed: func() {
		select {
		case r.news <- struct{}{}:
		default:
		}
	}})
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if r.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) follow(t *testing.T) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Follow(ctx, r.client, "n1"); close(done) }()
	end = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(end)
	return end
}

func (r *rig) until(t *testing.T, what string, ok func(merge.Listing, string) bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		l := r.Listing()
		var uids []string
		for _, p := range l.Entries[0].Pods {
			uids = append(uids, string(p.UID))
			if len(p.ManagedFields) > 0 {
				t.Fatal("managed fields kept")
			}
		}
		text := strings.Join(uids, " ")
		if ok(l, text) {
			return
		}
		select {
		case <-r.news:
		case <-limit:
			t.Fatalf("%s: heard %v, error %q, pods %s", what, l.Heard, l.Err, text)
		}
	}
}

func (r *rig) pods(t *testing.T, want string) {
	t.Helper()
	r.until(t, "want "+want, func(l merge.Listing, got string) bool { return l.Heard && l.Err == "" && got == want })
}

func TestFollow(t *testing.T) {
	server := apitest.New(t)
	server.Put("pods", boundPod("b", "u2", "n1"))
	server.Put("pods", boundPod("x", "u9", "other"))
	r := newRig(t, server)
	if r.Listing().Heard {
		t.Fatal("heard before anybody spoke")
	}
	end := r.follow(t)
	r.pods(t, "u2")
	first := r.Listing().Entries[0].Pods[0]
	server.Put("pods", boundPod("a", "u1", "n1"))
	r.pods(t, "u1 u2")
	server.Put("pods", boundPod("a", "u3", "n1")) // replaced under its name
	r.pods(t, "u3 u2")
	server.Delete("pods", "ns", "a")
	r.pods(t, "u2")

	// The API server goes: what was heard stays, and the error is told.
	server.Away(true)
	r.until(t, "error", func(l merge.Listing, got string) bool {
		return l.Heard && strings.Contains(l.Err, "connection refused") && got == "u2"
	})
	server.Put("pods", boundPod("c", "u4", "n1"))
	server.Away(false)
	r.pods(t, "u2 u4")
	if r.Listing().Entries[0].Pods[0] != first {
		t.Error("a pod that did not change is another after the reconnect")
	}

	// Another session: a whole list, with deletions honoured.
	end()
	server.Delete("pods", "ns", "b")
	r.follow(t)
	r.pods(t, "u4")
}

func TestAwayAtFirst(t *testing.T) {
	server := apitest.New(t)
	server.Away(true)
	r := newRig(t, server)
	r.follow(t)
	r.until(t, "error", func(l merge.Listing, _ string) bool { return !l.Heard && l.Err != "" })
	server.Away(false)
	r.pods(t, "")
}

// TestLateButNotSilent: what was granted is no silence, though the list, which
// follows the answer, is not there yet when the patience ends.
func TestLateButNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Patience: patience, Log: slog.New(slog.DiscardHandler), Changed: func() {}})
		defer s.expect()()
		s.Report(nil)
		<-time.After(2 * patience)
		synctest.Wait()
		if l := s.Listing(); l.Err != "" {
			t.Errorf("error %q of a server that answered", l.Err)
		}
	})
}

// TestSilence: no answer becomes an error once, and nothing but no answer; also
// after there were no credentials at first.
func TestSilence(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connects, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	server := apitest.New(t)
	r := newRig(t, server)
	answers := r.client
	if r.client, err = kubernetes.NewForConfig(&rest.Config{Host: "http://" + silent.Addr().String()}); err != nil {
		t.Fatal(err)
	}
	overdue := func(l merge.Listing, _ string) bool {
		return !l.Heard && l.Err == "no answer within "+patience.String()
	}
	r.Report(errors.New("no credentials"))
	r.Report(nil)
	end := r.follow(t)
	r.until(t, "silence to be an error", overdue)
	end()
	r.Report(nil) // other credentials
	end = r.follow(t)
	r.until(t, "silence to be an error again", overdue)
	end()
	r.client = answers
	r.follow(t)
	r.pods(t, "")
}

// TestDeletedByForce: a pod that goes before its node has ended it is listed for a while with
// the grace it has, also beside another one of its name; others are not.
func TestDeletedByForce(t *testing.T) {
	now := metav1.Now()
	deleted := func(grace int64, change func(*v1.Pod)) *v1.Pod {
		p := boundPod("web", "u1", "n1")
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace
		change(p)
		return p
	}
	same := func(*v1.Pod) {}
	for name, test := range map[string]struct {
		last   *v1.Pod
		listed bool
	}{
		"by force":             {deleted(0, same), true},
		"a version was missed": {boundPod("web", "u1", "n1"), false},
		"finalizer removed":    {deleted(30, same), false},
		"ended before":         {deleted(0, func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }), false},
		"mirror":               {deleted(0, func(p *v1.Pod) { p.Annotations = map[string]string{pod.ConfigMirrorAnnotation: "1"} }), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told atomic.Int32
				s := New(Config{Patience: patience, Log: slog.New(slog.DiscardHandler), Changed: func() { told.Add(1) }})
				store := (*store)(s)
				listed := func() (uids string) {
					for _, e := range s.Listing().Entries {
						for _, p := range e.Pods {
							uids += fmt.Sprintf("%s %v ", p.UID, p.DeletionTimestamp != nil)
						}
					}
					return uids
				}
				if err := errors.Join(store.Add(boundPod("web", "u1", "n1")), store.Delete(test.last), store.Add(boundPod("web", "u2", "n1"))); err != nil {
					t.Fatal(err)
				}
				want := "u2 false "
				if test.listed {
					want += "u1 true "
				}
				if got := listed(); got != want {
					t.Errorf("at first %q, want %q", got, want)
				}
				before := told.Load()
				<-time.After(farewell)
				synctest.Wait()
				if got := listed(); got != "u2 false " || (told.Load() > before) != test.listed {
					t.Errorf("then %q, told %d times", got, told.Load()-before)
				}
			})
		})
	}
}

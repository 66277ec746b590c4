// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/store"
)

func open(t *testing.T, path string) *Journal {
	t.Helper()
	j, damage, err := Open(store.Config{Path: path, Log: slog.New(slog.DiscardHandler)})
	if err != nil || damage != nil {
		t.Fatalf("%v, %v", damage, err)
	}
	return j
}

func podRecord(t *testing.T, phase v1.PodPhase) Pod {
	t.Helper()
	data, err := (&v1.PodStatus{Phase: phase}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return Pod{Namespace: "default", Name: "web", Status: data}
}

func TestComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.db")
	j := open(t, path)
	j.PutPod("a", podRecord(t, v1.PodPending))
	j.PutPod("a", podRecord(t, v1.PodRunning))
	j.PutPod("b", podRecord(t, v1.PodRunning))
	j.DropPod("b")
	j.PutCursor("podworker.events", feed.Revision{Epoch: "e", N: 7})
	j.PutConfig([]byte(`{"schema":1}`))
	if err := j.PutNode("n1", &v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{BootID: "boot"}}); err != nil {
		t.Fatal(err)
	}
	if err := j.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	j.PutPod("c", podRecord(t, v1.PodRunning)) // after the last flush: lost by a kill
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}

	j = open(t, path)
	defer func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}()
	pods, err := j.Pods()
	if err != nil || len(pods) != 1 {
		t.Fatalf("%v, %v", pods, err)
	}
	if status, err := pods["a"].Decode(); err != nil || status.Phase != v1.PodRunning || pods["a"].Name != "web" {
		t.Errorf("%v, %v", status, err)
	}
	if revision, err := j.Cursor("podworker.events"); err != nil || revision.N != 7 {
		t.Errorf("%v, %v", revision, err)
	}
	if revision, err := j.Cursor("volume.events"); err != nil || revision != (feed.Revision{}) {
		t.Errorf("%v, %v", revision, err)
	}
	if data, err := j.Config(); err != nil || string(data) != `{"schema":1}` {
		t.Errorf("%s, %v", data, err)
	}
	if status, err := j.Node("n1"); err != nil || status.NodeInfo.BootID != "boot" {
		t.Errorf("%v, %v", status, err)
	}
	if status, err := j.Node("n2"); err != nil || status != nil {
		t.Errorf("%v, %v", status, err)
	}
}

func TestRunFlushesAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.db")
	j := open(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	j.PutPod("a", podRecord(t, v1.PodRunning))
	cancel()
	if err := j.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if pods, err := j.Pods(); err != nil || len(pods) != 1 {
		t.Errorf("%v, %v", pods, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	// A closed file takes nothing more; what could not be written stays to be written.
	j.PutPod("b", podRecord(t, v1.PodRunning))
	if err := j.Flush(t.Context()); err == nil || j.Unwritten() != 1 {
		t.Errorf("%v, %d records left to write", err, j.Unwritten())
	}
}

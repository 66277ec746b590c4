package actuate

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/podworker/internal/actuate/gc"
)

// Collect removes what is left of ended pods. The caller knows pods, containers
// and sandboxes; what lies on the disk is added here. All errors are returned,
// none keeps the rest from being removed.
func (a *Actuator) Collect(ctx context.Context, facts gc.Facts, policy gc.Policy) error {
	if err := a.survey(&facts); err != nil {
		return err
	}
	plan := gc.Decide(facts, policy)
	none := &v1.Pod{} // only ids are known
	var failed error
	for _, id := range plan.Containers {
		failed = errors.Join(failed, a.RemoveContainer(ctx, none, id))
	}
	for _, id := range plan.Sandboxes {
		err := a.StopSandbox(ctx, none, id)
		if err == nil {
			err = a.RemoveSandbox(ctx, none, id)
		}
		failed = errors.Join(failed, err)
	}
	for _, uid := range plan.PodDirs {
		failed = errors.Join(failed, a.removePodDir(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}))
	}
	for _, dir := range plan.LogDirs {
		failed = errors.Join(failed, os.RemoveAll(filepath.Join(a.cfg.PodLogsDir, dir)))
	}
	for _, link := range plan.Links {
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return errors.Join(failed, a.pruneRecords(ctx, facts.Now))
}

// survey reads what lies on the disk.
func (a *Actuator) survey(facts *gc.Facts) error {
	logs, err := dirsIn(a.cfg.PodLogsDir)
	if err != nil {
		return err
	}
	pods, err := dirsIn(a.layout.Pods())
	if err != nil {
		return err
	}
	facts.LogDirs = logs
	facts.PodDirs = nil
	for _, uid := range pods {
		facts.PodDirs = append(facts.PodDirs, types.UID(uid))
	}
	links, err := os.ReadDir(a.cfg.LegacyLogsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	facts.Links = nil
	for _, e := range links {
		path := filepath.Join(a.cfg.LegacyLogsDir, e.Name())
		if e.Type()&fs.ModeSymlink == 0 || exists(path) {
			continue
		}
		id, _ := pod.ParseLegacyLogLink(path)
		facts.Links = append(facts.Links, gc.Link{Path: path, ContainerID: id})
	}
	return nil
}

func dirsIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

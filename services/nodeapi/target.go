package nodeapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/rpc"
	"github.com/sextant-node/sextant/pkg/service"
)

// refusal is an answer with a status of its own.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// Answers of the kubelet, word for word.
var (
	errNoPod    = &refusal{http.StatusNotFound, "pod does not exist"}
	errOtherPod = &refusal{http.StatusNotFound, "pod not found"}
	errUpgrade  = &refusal{http.StatusInternalServerError, "Upgrade request required"}
)

// refuse writes an error as the kubelet's streaming handlers do: what the runtime
// does not know is 404, everything else 500.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var r *refusal
	switch {
	case errors.As(err, &r):
		status = r.status
	case rpc.Is(err, rpc.NotFound):
		status = http.StatusNotFound
	}
	if r == errUpgrade {
		http.Error(w, r.text, status) // as the kubelet's proxy does
		return
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(err.Error())) // a caller that went away
}

// A caller who asks for what is not known waits so long for news of it.
const (
	renewLimit = 2 * time.Second
	renewRetry = 50 * time.Millisecond
)

// target is what a request is about.
type target struct {
	pod       *v1.Pod
	container string
	// missing is what the kubelet says when that does not run.
	missing string
	// once: it must not be done twice.
	once bool
}

// find finds a pod that is desired, by its name; one that is not there may have
// come a moment ago. A static pod answers to its own UID and to its mirror's.
func (s *Service) find(ctx context.Context, namespace, name, uid string) (*v1.Pod, error) {
	d, ok := s.desiredPod(namespace, name)
	if !ok {
		s.renew(ctx, s.pods.Pull)
		d, ok = s.desiredPod(namespace, name)
	}
	switch {
	case !ok:
		return nil, errNoPod
	case uid != "" && uid != string(d.pod.UID) && uid != d.mirror:
		return nil, errOtherPod
	}
	return d.pod, nil
}

// desiredPod is the pod of a name; of two, the one that stays.
func (s *Service) desiredPod(namespace, name string) (found *desired, ok bool) {
	for _, d := range s.pods.Items() {
		if d.pod.Namespace == namespace && d.pod.Name == name && (found == nil || found.pod.DeletionTimestamp != nil) {
			found = d
		}
	}
	return found, found != nil
}

// resolve finds the runtime's id of a pod's container, or of its sandbox if none
// is named, and does something with it. A reading that may be old (nothing runs,
// or the runtime refuses) is renewed once, and if it names another id that is
// tried. What must not be done twice is tried again only if the runtime does not
// know the first id at all.
func (s *Service) resolve(ctx context.Context, t *target, do func(id string) error) error {
	id, err := s.idOf(t)
	if err == nil {
		err = do(id)
	}
	var final *refusal
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case id != "" && (errors.As(err, &final) || t.once && !rpc.Is(err, rpc.NotFound)):
		return err
	}
	s.renew(ctx, s.records.Pull)
	if newer, found := s.idOf(t); found == nil && newer != id {
		return do(newer)
	}
	return err
}

// idOf looks into what pleg has seen.
func (s *Service) idOf(t *target) (string, error) {
	if record, ok := s.records.Get(string(t.pod.UID)); ok && t.container == "" {
		if id, ready := record.ready(); ready {
			return id, nil
		}
	} else if ok {
		if c, running := record.running(t.container); running {
			return c.id, nil
		}
	}
	return "", &refusal{http.StatusInternalServerError, t.missing}
}

// renew pulls a feed. An owner that is just being restarted is waited for; without
// one the last reading has to do.
func (s *Service) renew(ctx context.Context, pull func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, renewLimit)
	defer cancel()
	again := time.NewTicker(renewRetry)
	defer again.Stop()
	for {
		err := pull(ctx)
		if !rpc.Is(err, rpc.Unavailable) {
			return
		}
		select {
		case <-ctx.Done():
			s.kit.Log.Warn("an old reading has to do", service.KeyError, err.Error())
			return
		case <-again.C:
		}
	}
}

// containerOf is a container of any kind of a pod.
func containerOf(p *v1.Pod, name string) (*v1.Container, bool) {
	for _, c := range pod.Containers(p) {
		if c.Name == name {
			return c, true
		}
	}
	return nil, false
}

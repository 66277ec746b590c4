// SPDX-License-Identifier: Apache-2.0

package step

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/test/stories"
)

// TestStories replays each testdata/*.txtar: the pod, the story's commands, and
// the transcript they must give. A command that changes the world is followed
// by a step; "run" goes on, every action succeeding, until nothing is left to do.
func TestStories(t *testing.T) {
	stories.Replay(t, 30, tell)
}

func parsePod(t *testing.T, data []byte) *v1.Pod {
	t.Helper()
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict(data, p); err != nil {
		t.Fatal(err)
	}
	if p.Name == "" {
		p.Name = "app"
	}
	if p.Namespace == "" {
		p.Namespace = "default"
	}
	if p.UID == "" {
		p.UID = "uid-1"
	}
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Image == "" {
			p.Spec.Containers[i].Image = "img"
		}
	}
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Image == "" {
			p.Spec.InitContainers[i].Image = "img"
		}
	}
	return p
}

type teller struct {
	*world
	archive *txtar.Archive
	t       *testing.T
	out     bytes.Buffer
	last    string
}

func tell(t *testing.T, a *txtar.Archive) string {
	t.Helper()
	var p *v1.Pod
	if data := stories.Part(a, "pod"); data != nil {
		p = parsePod(t, data)
	}
	s := &teller{world: newWorld(p), archive: a, t: t}
	for line := range strings.Lines(string(stories.Part(a, "story"))) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fmt.Fprintf(&s.out, "> %s\n", line)
		if err := s.do(strings.Fields(line)); err != nil {
			t.Fatalf("%q: %v\n%s", line, err, s.out.String())
		}
	}
	return s.out.String()
}

// show steps and writes the plan, unless it is the same as the one before.
func (s *teller) show() {
	events := s.plan.Events
	s.plan.Events = nil
	p := s.stepOnce()
	p.Events = append(events[:len(events):len(events)], p.Events...)
	s.plan.Events = nil
	if text := transcript(p, epoch, s.now); text != s.last {
		s.out.WriteString(text)
		s.last = text
	}
}

func (s *teller) do(args []string) error {
	ready := s.prepare(args)
	if ready == nil {
		s.show()
	}
	if ready == errQuiet {
		return nil
	}
	return ready
}

var errQuiet = fmt.Errorf("no step")

// prepare changes the world as a command says.
func (s *teller) prepare(args []string) error {
	rest := args[1:]
	switch args[0] {
	case "step":
	case "run": // until quiet
		return s.run()
	case "quiet": // the next commands change the world and nothing steps
		return s.several(rest)
	case "after":
		d, err := time.ParseDuration(rest[0])
		if err != nil {
			return err
		}
		s.now = s.now.Add(d)
	case "done":
		if err := s.end(Key(rest[0]), nil); err != nil {
			return err
		}
		s.refresh()
	case "done-unseen": // the action succeeds, the record is not read again
		return s.end(Key(rest[0]), nil)
	case "fail":
		return s.end(Key(rest[0]), &Failed{Reason: rest[1], Message: strings.Join(rest[2:], " ")})
	case "unanswered": // nobody was there to do it
		return s.end(Key(rest[0]), &Failed{Reason: "Error", Message: strings.Join(rest[1:], " "), Away: true})
	case "queued": // others are before it
		return s.queue(Key(rest[0]), true)
	case "turn": // its turn has come
		return s.queue(Key(rest[0]), false)
	case "refresh":
		s.refresh()
	default:
		return s.change(args)
	}
	return nil
}

func (s *teller) several(args []string) error {
	if err := s.prepare(args); err != nil {
		return err
	}
	return errQuiet
}

func (s *teller) run() error {
	s.show()
	for range 200 {
		keys := slices.Sorted(maps.Keys(s.in.Flights))
		if len(keys) == 0 && !s.plan.Refresh && !s.plan.Again {
			return errQuiet
		}
		for _, key := range keys {
			if err := s.end(key, nil); err != nil {
				return err
			}
		}
		s.refresh()
		s.show()
		if s.forgot {
			return errQuiet
		}
	}
	return fmt.Errorf("still busy: %v", slices.Sorted(maps.Keys(s.in.Flights)))
}

// change is what happens to the node and the cluster.
func (s *teller) change(args []string) error {
	rest := args[1:]
	seconds := func(text string) *int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			s.t.Fatalf("%v: %v", args, err)
		}
		return &n
	}
	switch args[0] {
	case "exit", "exit-unseen", "exited-before":
		c, err := s.newestOf(rest[0])
		if err != nil {
			return err
		}
		s.die(c.ID, int32(*seconds(rest[1])))
		if args[0] == "exit-unseen" { // by pleg, so far
			return nil
		}
		s.refresh()
	case "vanish":
		c, err := s.newestOf(rest[0])
		if err != nil {
			return err
		}
		s.act(Action{Kind: Remove, ID: c.ID})
		s.refresh()
	case "state": // state NAME created|unknown|never-ran
		c, err := s.newestOf(rest[0])
		if err != nil {
			return err
		}
		if c.State = RuntimeState(rest[1]); rest[1] == "never-ran" {
			c.State, c.NeverRan, c.ExitCode, c.FinishedAt = Exited, true, 128, s.now
		}
		s.refresh()
	case "have": // have NAME RESTARTS: an instance made by somebody else
		s.conts = slices.Insert(s.conts, 0, Instance{ID: s.id(rest[0] + "-" + rest[1]), Name: rest[0], Sandbox: s.sandbox[0].ID,
			State: Running, RestartCount: int(*seconds(rest[1])), PreStop: slices.Contains(rest, "prestop")})
		s.refresh()
	case "loaded": // the image, by somebody else
		s.loaded = true
	case "have-sandbox":
		s.act(Action{Kind: RunSandbox, Attempt: len(s.sandbox)})
		s.refresh()
	case "sandbox-dies":
		s.act(Action{Kind: StopSandbox, ID: s.sandbox[0].ID})
		s.refresh()
	case "no-ip":
		s.sandbox[0].IPs = nil
		s.refresh()
	case "verdict": // verdict ID started|liveness|startup
		s.in.Verdicts = maps.Clone(s.in.Verdicts)
		s.in.Verdicts[rest[0]] = map[string]Probes{
			"started": {Started: true}, "liveness": {Started: true, LivenessFailed: true}, "startup": {StartupFailed: true},
		}[rest[1]]
	case "delete":
		p := s.in.Accepted.DeepCopy()
		at := metav1.NewTime(s.now)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, seconds(rest[0])
		s.desire(p)
	case "config-removes":
		s.in.Desired = nil
	case "manifest-rewritten": // removed and written again between two readings
		d := *s.in.Desired
		d.Begun = s.now
		s.in.Desired = &d
	case "config-incomplete":
		s.in.Config = Config{}
	case "config-unheard":
		s.in.Config = Config{Unheard: true}
	case "config-complete":
		s.in.Config = Config{PodsComplete: true, SourcesComplete: true}
	case "config-lists", "config-changes":
		s.desire(parsePod(s.t, stories.Part(s.archive, rest[0])))
	case "phase":
		p := s.in.Accepted.DeepCopy()
		p.Status.Phase = v1.PodPhase(rest[0])
		s.desire(p)
		s.in.Observed.Current = false
	case "holder":
		s.in.Holder = ""
		if rest[0] != "none" {
			s.in.Holder = "uid-0"
		}
	case "refuse":
		asked := s.in.Flights[Action{Kind: Admit}.Key()].Action
		asked.Kind = Admit
		delete(s.in.Flights, asked.Key())
		s.in.Facts, s.plan.Events = Apply(s.in.Facts, s.in.UID, asked,
			Result{Admission: &Answer{Decision: Decision(strings.ReplaceAll(rest[0], "-", " ")), Reason: rest[1], Message: strings.Join(rest[2:], " ")}}, s.now)
	case "releases-not": // the cgroup is busy
		s.in.Resources = Resources{Held: true, Read: true, Error: strings.Join(rest, " ")}
	case "released":
		s.in.Resources = Resources{Gone: true}
	case "blocked":
		s.in.Resources.Blocked = strings.Join(rest, " ")
	case "dead-age":
		d, err := time.ParseDuration(rest[0])
		if err != nil {
			return err
		}
		s.in.Settings.DeadAge = d
		return errQuiet
	case "surplus":
		s.in.Excess = map[string]bool{rest[0]: true}
	case "resources-change":
		s.in.ResourcesChanged = s.now
	case "node":
		s.in.NodeKnown = rest[0] == "known"
	case "services":
		s.in.ServicesKnown = rest[0] == "known"
	case "objects-change":
		s.in.ObjectsChanged = s.now
	case "resource-loses":
		s.in.Resources = Resources{Lost: true}
	case "allocation":
		s.in.Resources.Read = rest[0] == "known"
	case "cpus": // cpus shared|CONTAINER LIST
		if rest[0] == "shared" {
			s.in.Resources.SharedCPUs = rest[1]
		} else {
			s.in.Resources.OwnCPUs = map[string]string{rest[0]: rest[1]}
		}
	case "evict":
		s.in.Resources.Eviction = &Eviction{Reason: rest[0], Message: strings.Join(rest[2:], " "), Disruption: true,
			Grace: time.Duration(*seconds(rest[1])) * time.Second, At: s.now}
	case "shutdown": // shutdown off|active|end GRACE
		s.in.Shutdown = Shutdown{Active: rest[0] != "off", End: rest[0] == "end"}
		if s.in.Shutdown.End {
			s.in.Shutdown.Grace = time.Duration(*seconds(rest[1])) * time.Second
		}
	case "volumes":
		s.in.Volumes.Ready, s.in.Volumes.Waiting = rest[0] == "ready", strings.Join(rest[1:], " ")
	case "no-room":
		s.in.Volumes.LimitExceeded = strings.Join(rest, " ")
	case "volumes-gone":
		s.in.Volumes = Volumes{Gone: true}
	case "network":
		s.in.Network = Network{Ready: rest[0] == "ready", Message: strings.Join(rest[1:], " ")}
	case "handler", "handler-unread":
		s.in.Handler = Handler{Waiting: strings.Join(rest, " "), Unread: args[0] == "handler-unread"}
	case "away":
		s.away[rest[0]] = true
		s.in.Volumes.Waiting = "volume data: waits for ConfigMap default/cfg"
	case "back":
		delete(s.away, rest[0])
		s.allocate()
		s.refresh()
	case "runtime-error":
		s.in.Observed.Error = strings.Join(rest, " ")
		s.refresh()
	case "unknown-runtime":
		s.in.Observed = Observed{}
	case "exit-code":
		s.exit = int32(*seconds(rest[0]))
		return errQuiet
	case "kill-9":
		return s.crash()
	case "reboot": // kill -9 of everything, and another boot
		s.in.Boot = fmt.Sprintf("boot-%d", s.serial)
		return s.crash()
	case "no-journal":
		s.in.Facts, s.in.Accepted = Facts{}, nil
	default:
		return fmt.Errorf("no such command")
	}
	return nil
}

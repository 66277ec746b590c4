package pressure_test

import (
	"testing"
	"time"

	"github.com/sextant-node/sextant/services/resource/internal/pressure"
)

const transition = 5 * time.Minute

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// step is one measurement at a minute.
type step struct {
	minute    int
	available map[string]int64 // memory.available and nodefs.available, against 100
	memory    bool             // under memory pressure after it
	disk      bool
	since     int // of memory, in minutes
}

func TestEvaluate(t *testing.T) {
	for name, story := range map[string][]step{
		"calm": {{0, map[string]int64{"memory.available": 100}, false, false, 0}, {1, map[string]int64{"memory.available": 200}, false, false, 0}},
		"crossed, and over after the transition": {
			{0, map[string]int64{"memory.available": 200}, false, false, 0},
			{1, map[string]int64{"memory.available": 99}, true, false, 1},
			{2, map[string]int64{"memory.available": 200}, true, false, 1},
			{5, map[string]int64{"memory.available": 200}, true, false, 1},
			{6, map[string]int64{"memory.available": 200}, false, false, 6},
		},
		"a relapse starts the transition anew": {
			{0, map[string]int64{"memory.available": 0}, true, false, 0},
			{4, map[string]int64{"memory.available": 0}, true, false, 0},
			{8, map[string]int64{"memory.available": 200}, true, false, 0},
			{9, map[string]int64{"memory.available": 200}, false, false, 9},
			{10, map[string]int64{"memory.available": 0}, true, false, 10},
		},
		"one condition is not another": {
			{0, map[string]int64{"nodefs.available": 0, "memory.available": 100}, false, true, 0},
		},
		"not measured is not over": {
			{0, map[string]int64{"memory.available": 0}, true, false, 0},
			{1, nil, true, false, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			conditions := map[string]pressure.Condition{"memory.available": pressure.Memory, "nodefs.available": pressure.Disk}
			var state map[pressure.Condition]pressure.State
			for _, s := range story {
				var signals []pressure.Signal
				for name, n := range s.available {
					signals = append(signals, pressure.Signal{Name: name, Condition: conditions[name], Available: n, Threshold: 100})
				}
				state = pressure.Evaluate(state, signals, transition, epoch.Add(time.Duration(s.minute)*time.Minute))
				if got := state[pressure.Memory]; got.Under != s.memory || !got.Since.Equal(epoch.Add(time.Duration(s.since)*time.Minute)) {
					t.Errorf("minute %d: memory %+v", s.minute, got)
				}
				if got := state[pressure.Disk].Under; got != s.disk {
					t.Errorf("minute %d: disk %v", s.minute, got)
				}
				if state[pressure.PID].Under {
					t.Errorf("minute %d: pid pressure of nothing", s.minute)
				}
				for c, st := range state {
					if st.Under != (st.Message != "") {
						t.Errorf("minute %d: condition %d under %v says %q", s.minute, c, st.Under, st.Message)
					}
				}
			}
		})
	}
}

func TestMessagesAreInOrder(t *testing.T) {
	signals := []pressure.Signal{
		{Name: "nodefs.inodesFree", Condition: pressure.Disk, Available: 1, Threshold: 2},
		{Name: "nodefs.available", Condition: pressure.Disk, Available: 3, Threshold: 4},
		{Name: "pid.available", Condition: pressure.PID, Available: 9, Threshold: 4},
	}
	state := pressure.Evaluate(nil, signals, transition, epoch)
	if got, want := state[pressure.Disk].Message, "nodefs.available: 3 of at least 4, nodefs.inodesFree: 1 of at least 2"; got != want {
		t.Errorf("says %q, want %q", got, want)
	}
}

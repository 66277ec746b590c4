// SPDX-License-Identifier: Apache-2.0

package step

// Decides reports whether the plan holds decisions that are not on the disk, where
// saved is. They have to be before anything of the plan is done: a process that is
// killed in the middle would not know what it is in the middle of. The rest of the
// facts may be written a moment later.
func (p *Plan) Decides(saved Facts) bool {
	f := &p.Facts
	return saved.State != f.State || (saved.Rejected == nil) != (f.Rejected == nil) || (saved.RestartAll == nil) != (f.RestartAll == nil) ||
		otherAdmission(saved.Admitted, f.Admitted) || otherEnd(saved.Termination, f.Termination) ||
		otherKills(saved.Kills, f.Kills) || longerBackoffs(&saved, f) || p.forgetsExit(saved)
}

func otherAdmission(was, is *Admission) bool {
	return (was == nil) != (is == nil) || was != nil && (was.CgroupParent != is.CgroupParent || !was.At.Equal(is.At))
}

func otherEnd(was, is *Termination) bool {
	return (was == nil) != (is == nil) || was != nil && (was.Grace != is.Grace || was.Cause != is.Cause)
}

// otherKills: another container must stop, or sooner, or it has had its hook.
func otherKills(was, is map[string]Kill) bool {
	if len(was) != len(is) {
		return true
	}
	for id, k := range is {
		before, ok := was[id]
		if !ok || k.Deadline.Before(before.Deadline) || k.HookDone && !before.HookDone {
			return true
		}
	}
	return false
}

// longerBackoffs: what is about to be tried, or has failed, lengthens a back-off; or
// a container is given another size.
func longerBackoffs(saved, f *Facts) bool {
	for name, c := range f.Containers {
		was := saved.Containers[name]
		if !c.Crash.Updated.Equal(was.Crash.Updated) || c.Size != nil && was.Size != nil && *c.Size != *was.Size {
			return true
		}
	}
	for key, pull := range f.Pulls {
		if !pull.Backoff.Updated.Equal(saved.Pulls[key].Backoff.Updated) {
			return true
		}
	}
	return false
}

// forgetsExit: the last instance of a container is removed from the runtime, and the
// disk does not know how it ended. That decides whether there is another.
func (p *Plan) forgetsExit(saved Facts) bool {
	for _, a := range p.Start {
		last := p.Facts.Containers[a.Container].Last
		if a.Kind != Remove || last == nil || last.ID != a.ID || last.Exit == nil {
			continue
		}
		if was := saved.Containers[a.Container].Last; was == nil || was.ID != a.ID || was.Exit == nil {
			return true
		}
	}
	return false
}

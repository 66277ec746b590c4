// SPDX-License-Identifier: Apache-2.0

package step

import (
	"hash/fnv"
	"maps"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod/reason"
	"github.com/sextant-node/sextant/pkg/pod/restart"
)

// Result is how an action ended.
type Result struct {
	// Failed is set when it did not succeed; Cancelled when that was wanted.
	Failed    *Failed
	Cancelled bool
	// ID of the container or sandbox that was made.
	ID string
	// Ref of the image that was made present.
	Ref string
	// CPUs that the container was made with, as a list.
	CPUs string
	// Admission is resource's answer.
	Admission *Answer
	// Fingerprint of the pod that was declared.
	Fingerprint uint64
}

// Failed is an error in the words of a status.
type Failed struct {
	Reason, Message string
	// Cause is the error of the call that failed, with its gRPC code; empty if there was none.
	Cause string
	// Away: who had to act was not there, so nothing was tried.
	Away bool
}

// Answer is resource's answer to Admit.
type Answer struct {
	Decision        Decision
	Reason, Message string
	CgroupParent    string
}

// Decision of an admission.
type Decision string

// The decisions.
const (
	Admitted Decision = "admitted"
	Refused  Decision = "refused"
	Deferred Decision = "not yet"
)

// Apply folds the end of an action into the facts, and says what to tell of it.
func Apply(facts Facts, uid types.UID, a Action, r Result, now time.Time) (Facts, []Event) {
	f := facts.clone()
	if r.Cancelled {
		return f, nil
	}
	if a.Kind == Start {
		unsure(&f)
	}
	if r.Failed != nil {
		fail(&f, uid, a, *r.Failed, now)
		return f, nil
	}
	succeed(&f, a)
	if a.Kind == RunSandbox {
		f.Sandboxed = now
	}
	switch a.Kind {
	case Admit:
		return admitted(f, a, r.Admission, now)
	case Declare:
		f.Declared = r.Fingerprint
	case Pull:
		found(&f, a, r.Ref)
	case Look:
		looked(&f, a, r.Ref, now)
	case Start:
		c := f.Containers[a.Container]
		c.Instances, c.Last = a.Attempt+1, &Last{ID: r.ID, Sandbox: a.Sandbox}
		f.Containers[a.Container] = c
		f.Pinned[r.ID] = r.CPUs
	case Pin:
		if !f.Dead[a.ID] {
			f.Pinned[a.ID] = a.CPUs
		}
	case Update:
		f.Updated = uint64(a.Attempt)
		for _, change := range a.Changes {
			if c := f.Containers[change.Container]; c.Last != nil && c.Last.ID == change.ID {
				c.Size = &change.To
				f.Containers[change.Container] = c
			}
		}
	case PreStop:
		hookDone(&f, a.ID)
	case Stop:
		f.Dead[a.ID] = true
		delete(f.Pinned, a.ID)
	case StopSandbox:
		f.Stopped[a.ID] = true
	case Remove, RemoveSandbox:
		f.Removed[a.ID] = true
	case Withdraw:
		f.WithdrawAccepted = true
	case Release:
		f.ReleaseAccepted = true
	case Clean:
		f.Cleaned = true
	}
	return f, nil
}

func admitted(f Facts, asked Action, answer *Answer, now time.Time) (Facts, []Event) {
	if f.State == Syncing {
		// resource lost this pod and was asked to admit it again. A running pod is never
		// evaluated again, so any answer but Admitted only schedules another attempt.
		switch {
		case answer.Decision == Admitted:
			f.Admitted.CgroupParent = answer.CgroupParent
		case answer.Decision == Refused && !asked.Running:
			f.Unfit = &Rejection{At: now, Reason: answer.Reason, Message: answer.Message}
			fallthrough
		default:
			f.Failures[Action{Kind: Admit}.Key()] = Failure{
				Reason: answer.Reason, Message: answer.Message, At: now, Retry: now.Add(notYetRetry), Count: 1,
			}
		}
		return f, nil
	}
	if f.State == Rejected {
		return readmitted(f, answer, now)
	}
	if f.State != Pending {
		return f, nil
	}
	switch answer.Decision {
	case Admitted:
		f.NotYet = nil
		f.State = Syncing
		f.Admitted = &Admission{At: now, CgroupParent: answer.CgroupParent}
	case Refused:
		f.State = Rejected
		f.Rejected = &Rejection{At: now, Reason: answer.Reason, Message: answer.Message}
		return f, []Event{{Warning: true, Reason: answer.Reason, Message: answer.Message}}
	default:
		f.NotYet = &NotYet{Reason: answer.Reason, Message: answer.Message, At: now}
	}
	return f, nil
}

// readmitted takes the answer for a static pod that had been refused before.
func readmitted(f Facts, answer *Answer, now time.Time) (Facts, []Event) {
	switch answer.Decision {
	case Admitted:
		f.Rejected, f.State = nil, Syncing
		f.Admitted = &Admission{At: now, CgroupParent: answer.CgroupParent}
		return f, nil
	case Refused:
		f.Rejected.Asked = now
		f.Rejected.Again++
		was := f.Rejected.Reason
		f.Rejected.Reason, f.Rejected.Message = answer.Reason, answer.Message
		if was != answer.Reason {
			return f, []Event{{Warning: true, Reason: answer.Reason, Message: answer.Message}}
		}
	default:
		f.Rejected.Asked = now
	}
	return f, nil
}

func hookDone(f *Facts, id string) {
	if k, ok := f.Kills[id]; ok {
		k.HookDone = true
		f.Kills[id] = k
	}
}

// found notes the image that a pull has made present.
func found(f *Facts, pull Action, ref string) {
	key := pull.Key()
	f.Images[key] = Image{Image: pull.Image, Ref: ref}
	if facts, ok := f.Pulls[key]; ok {
		facts.Reason, facts.Backoff.LastError = "", ""
		f.Pulls[key] = facts
	}
}

// looked notes what a look for an image has come to; without ref it is not there.
func looked(f *Facts, look Action, ref string, now time.Time) {
	pull := look
	pull.Kind = Pull
	facts := f.Pulls[pull.Key()]
	if facts.Image != look.Image {
		return
	}
	facts.Looked = now
	f.Pulls[pull.Key()] = facts
	if ref != "" {
		found(f, pull, ref)
	}
}

// unsure forgets the images of volumes: each start makes sure of them again.
func unsure(f *Facts) {
	maps.DeleteFunc(f.Images, func(key Key, _ Image) bool { return strings.HasPrefix(string(key), string(Pull)+"/volume/") })
}

func fail(f *Facts, uid types.UID, a Action, why Failed, now time.Time) {
	switch a.Kind {
	case Look:
		looked(f, a, "", now)
		return
	case Update, Settle:
		if uint64(a.Attempt) != f.Resizing {
			return // another allocation is asked for by now
		}
	}
	if why.Away {
		away(f, a, why, now)
		return
	}
	switch a.Kind {
	case PreStop:
		hookDone(f, a.ID) // a failed hook holds nothing up
		return
	case Pull:
		pull := f.Pulls[a.Key()]
		if pull.Image != a.Image {
			pull = PullFacts{Image: a.Image}
		}
		if reason.PullFailed(why.Reason) {
			pull.Backoff = restart.PullPolicy().Next(pull.Backoff, now, now)
		} else { // it has not come to a pull
			pull.Backoff = restart.Backoff{Delay: jittered(uid, a, 1), Updated: now}
		}
		pull.Backoff.LastError, pull.Reason = why.Message, why.Reason
		f.Pulls[a.Key()] = pull
		return
	}
	key := a.Key()
	count := 1
	if was := f.Failures[key]; !was.Away {
		count += was.Count
	}
	f.Failures[key] = Failure{
		Reason: why.Reason, Message: why.Message, Cause: why.Cause, At: now, Count: count,
		Retry: now.Add(retryAfter(uid, a, count)),
	}
}

// succeed ends the failures of an action; those of one that ends or removes something once
// the runtime shows that it did, or each try would count as the first.
func succeed(f *Facts, a Action) {
	key := a.Key()
	failure, failed := f.Failures[key]
	if !failed {
		return
	}
	if !a.Kind.Ends() {
		delete(f.Failures, key)
		return
	}
	failure.Reported = true
	f.Failures[key] = failure
}

// away notes that nothing could be tried. That is no attempt: it starts no
// back-off, and the next try comes as soon as a restarting process may answer.
func away(f *Facts, a Action, why Failed, now time.Time) {
	key := a.Key()
	count := 1
	if was := f.Failures[key]; was.Away {
		count += was.Count
	}
	f.Failures[key] = Failure{
		Reason: why.Reason, Message: why.Message, At: now, Count: count, Away: true,
		Retry: now.Add(absences.After(count)),
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// retryAfter is how long a failed action waits: what creates 10 s ± 50 % as the
// kubelet does, what stops or asks a neighbour 1 s and then twice as long each
// time, up to 10 s.
func retryAfter(uid types.UID, a Action, count int) time.Duration {
	if !a.Kind.Creates() {
		return retries.After(count)
	}
	return jittered(uid, a, count)
}

// jittered is 10 s ± 50 %, the same for the same action.
func jittered(uid types.UID, a Action, count int) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(string(uid) + string(a.Key()) + strconv.Itoa(count)))
	return 5*time.Second + time.Duration(h.Sum32()%10_000)*time.Millisecond
}

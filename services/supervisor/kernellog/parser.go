// SPDX-License-Identifier: Apache-2.0

package kernellog

import (
	"strconv"
	"strings"
	"time"
)

const (
	// maxName bounds the name of a process: 15 bytes, each of which may be escaped.
	maxName = 4 * 15
	// maxPath bounds the path of a cgroup.
	maxPath = 4 << 10
)

// Scope is what was short of memory.
type Scope int

// Scopes.
const (
	// Machine: there was no memory left for anything.
	Machine Scope = iota
	// Group: a cgroup reached its limit.
	Group
)

// Kill is a process that the kernel killed for want of memory. Of several that it killed
// at once (memory.oom.group) this is the one that it had chosen.
type Kill struct {
	// Sequence and Since are those of the line that says it.
	Sequence uint64
	Since    time.Duration
	Process  string
	PID      int
	Scope    Scope
	// Cgroup is where the process was, and Limit whose limit was reached, as paths from
	// the root of the hierarchy. Empty where the kernel did not say: it leaves the
	// details out when there are many kills, and old kernels leave them out for Machine.
	Cgroup, Limit string
}

// Parser finds kills in the lines of the log, in their order. The zero value begins
// anywhere in it. The kernel kills one at a time, so lines of two kills never mix,
// though others may come between them.
type Parser struct {
	begun bool
	// scope as the details say it.
	scope Scope
	// detail is the line oom-kill:constraint= without its beginning, and task and limit
	// are what older kernels say instead.
	detail, task, limit string
	// group: what is killed next was not chosen, but is in the cgroup of one that was.
	group bool
}

const (
	invoked    = " invoked oom-killer: "
	details    = "oom-kill:constraint="
	groupStart = "Tasks in "
	groupEnd   = " are going to be killed due to memory.oom.group set"
	taskStart  = "Task in "
	taskMiddle = " killed as a result of limit of "
	inGroup    = "Memory cgroup out of memory"
	inMachine  = "Out of memory"
	chosen     = "Kill process " // before version 5.0, without a kill: it may be a child that dies
	killed     = "Killed process "
)

// Next takes the next line, and says which kill it completes, if any.
func (p *Parser) Next(r Record) (Kill, bool) {
	if !r.Kernel {
		return Kill{}, false
	}
	text := r.Text
	switch {
	case strings.HasPrefix(text, details):
		*p = Parser{begun: true, detail: strings.TrimPrefix(text, details)}
		if strings.HasPrefix(p.detail, "CONSTRAINT_MEMCG,") {
			p.scope = Group
		}
	case strings.HasPrefix(text, taskStart) && strings.Contains(text, taskMiddle):
		*p = Parser{begun: true, scope: Group}
		p.task, p.limit, _ = strings.Cut(strings.TrimPrefix(text, taskStart), taskMiddle)
	case strings.HasPrefix(text, groupStart) && strings.HasSuffix(text, groupEnd):
		*p = Parser{group: true}
	case strings.HasPrefix(text, inGroup+": "+chosen):
		p.begun, p.scope, p.group = true, Group, false
	case strings.HasPrefix(text, inMachine) && strings.Contains(text, ": "+chosen):
		p.begun, p.scope, p.group = true, Machine, false
	case invocation(text):
		*p = Parser{begun: true}
	default:
		return p.kill(r)
	}
	return Kill{}, false
}

// invocation reports whether a line begins "<name> invoked oom-killer: ".
func invocation(text string) bool {
	i := strings.Index(text, invoked)
	return i >= 0 && i <= maxName
}

// kill reads "[<what was short>: ]Killed process <pid> (<name>) total-vm:...".
func (p *Parser) kill(r Record) (Kill, bool) {
	what, rest, ok := strings.Cut(r.Text, killed)
	scope := p.scope
	switch {
	case !ok:
		return Kill{}, false
	case what == inGroup+": ":
		scope = Group
	case strings.HasPrefix(what, inMachine) && strings.HasSuffix(what, ": "): // (oom_kill_allocating_task) may be between
		scope = Machine
	case what != "" || !p.begun && !p.group:
		return Kill{}, false
	}
	number, rest, ok := strings.Cut(rest, " (")
	if at := strings.Index(number, ","); at >= 0 { // 2.6: "Killed process 1, UID 2, (name)"
		number = number[:at]
	}
	pid, err := strconv.ParseInt(number, 10, 32)
	name := rest[:max(0, lastOf(rest, ") total-vm:", ")"))]
	if !ok || err != nil || pid <= 0 || len(name) > maxName {
		return Kill{}, false
	}
	if p.group {
		return Kill{}, false
	}
	k := Kill{Sequence: r.Sequence, Since: r.Since, Process: clean(name, maxName), PID: int(pid), Scope: scope}
	k.Cgroup, k.Limit = p.task, p.limit
	if p.detail != "" {
		k.Cgroup, k.Limit = cgroups(p.detail, scope, name, number)
	}
	k.Cgroup, k.Limit = clean(k.Cgroup, maxPath), clean(k.Limit, maxPath)
	*p = Parser{}
	return k, true
}

// lastOf is where the first of the marks that are in a text is the last time, -1 if none
// is. A name may contain them, and what the kernel writes after it does not.
func lastOf(text string, marks ...string) int {
	for _, mark := range marks {
		if i := strings.LastIndex(text, mark); i >= 0 {
			return i
		}
	}
	return -1
}

// cgroups reads "...,{oom_memcg=<limit>|global_oom},task_memcg=<cgroup>,task=<name>,
// pid=<pid>,uid=<uid>": the end by the name and pid that are known, for a name may
// contain commas and the words. So may names of cgroups, but no slash, and a container
// chooses those of its own only: the beginning of a path is never its choice, and the
// cgroup is the one of the limit or beneath it.
func cgroups(detail string, scope Scope, name, pid string) (cgroup, limit string) {
	end := strings.LastIndex(detail, ",task="+name+",pid="+pid+",uid=")
	if end < 0 {
		return "", "" // of another kill, or cut off
	}
	detail = detail[:end]
	if scope == Machine {
		if _, cgroup, ok := strings.Cut(detail, ",global_oom,task_memcg=/"); ok {
			return "/" + cgroup, ""
		}
		return "", ""
	}
	_, detail, _ = strings.Cut(detail, ",oom_memcg=/")
	detail = "/" + detail
	const in = ",task_memcg="
	for from := 0; ; {
		i := strings.Index(detail[from:], in)
		if i < 0 {
			return "", ""
		}
		limit, cgroup = detail[:from+i], detail[from+i+len(in):]
		if cgroup == limit || strings.HasPrefix(cgroup, strings.TrimSuffix(limit, "/")+"/") {
			return cgroup, limit
		}
		from += i + len(in)
	}
}

// clean bounds what others chose, and replaces what is not printable.
func clean(text string, most int) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text[:min(len(text), most)])
}

// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"k8s.io/cri-client/pkg/logs"

	"github.com/sextant-node/sextant/pkg/rpc"
)

// cursor is how far a log was read: behind the count-th line with that time,
// and parts pieces of a line that came in pieces.
type cursor struct {
	// ID of the container.
	ID    string    `json:"id"`
	Time  time.Time `json:"time"`
	Count int       `json:"count"`
	Parts int       `json:"parts,omitempty"`
}

func parseCursor(raw []byte) (*cursor, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	c := &cursor{}
	err := json.Unmarshal(raw, c)
	var ok bool
	if c.Time, ok = storable(c.Time); err != nil || !ok || c.ID == "" || c.Count < 0 || c.Parts < 0 {
		return nil, rpc.Invalid.Errorf("after: not a cursor of this service")
	}
	return c, nil
}

// storable makes a time one that JSON can hold, which it cannot in every zone, nor in UTC
// if the year has five digits there.
func storable(t time.Time) (time.Time, bool) {
	t = t.UTC()
	return t, t.Year() >= 0 && t.Year() <= 9999
}

// bytes of the cursor, as given to readers.
func (c cursor) bytes() []byte {
	raw, err := json.Marshal(c)
	if err != nil {
		panic(err) // a string, a time and two numbers always marshal
	}
	return raw
}

// errEnough ends reading at the limit.
var errEnough = errors.New("byte limit reached")

// lines takes a log line by line, of all streams and with a timestamp before each, as the
// reader of cri-client writes it, and hands on what was asked for. It counts where it is.
type lines struct {
	timestamps bool
	// limit is how many bytes are left; negative for no limit.
	limit int64
	// after is what a former reader has had already; nil for nothing.
	after *cursor
	out   func(data []byte, at cursor) error

	// at begins with the time since when the log is read.
	at      cursor
	midLine bool
}

// stream takes what was written to one stream of a log. A line that is not wanted counts: the
// reader writes no timestamp before what follows a piece of a line, whichever stream that was of.
type stream struct {
	*lines
	wanted bool
}

// Write implements io.Writer; each call is one line, or a piece of one.
func (s stream) Write(line []byte) (int, error) {
	return len(line), s.take(line, s.wanted)
}

func (l *lines) take(line []byte, wanted bool) error {
	content := line
	text := line // without the timestamp
	if stamp, rest, ok := stamped(line); ok && !l.midLine {
		text = rest
		l.step(stamp)
		if !l.timestamps {
			content = rest
		}
	} else {
		l.at.Parts++
	}
	// The reader's rule: what is empty ends a line too.
	l.midLine = len(text) > 0 && !bytes.HasSuffix(text, []byte("\n"))
	if !wanted || l.seen() {
		return nil
	}
	enough := l.limit >= 0 && int64(len(content)) >= l.limit
	if enough {
		content = content[:l.limit]
	}
	if l.limit >= 0 {
		l.limit -= int64(len(content))
	}
	if err := l.out(content, l.at); err != nil {
		return err
	}
	if enough {
		return errEnough
	}
	return nil
}

// step goes to the beginning of a line with a timestamp. One that a cursor cannot hold, which
// a log may have, makes the line a part of the one before.
func (l *lines) step(stamp time.Time) {
	stamp, ok := storable(stamp)
	switch {
	case !ok:
		l.at.Parts++
		return
	case stamp.Equal(l.at.Time):
		l.at.Count++
	default:
		l.at.Time, l.at.Count = stamp, 1
	}
	l.at.Parts = 0
}

// seen reports whether a former reader has had this line.
func (l *lines) seen() bool {
	switch a := l.after; {
	case a == nil || l.at.Time.After(a.Time):
		return false
	case l.at.Time.Before(a.Time) || l.at.Count < a.Count:
		return true
	default:
		return l.at.Count == a.Count && l.at.Parts <= a.Parts
	}
}

// stamped is the time before a line, and the line without it.
func stamped(line []byte) (stamp time.Time, rest []byte, ok bool) {
	first, rest, found := bytes.Cut(line, []byte(" "))
	if !found {
		return time.Time{}, nil, false
	}
	stamp, err := time.Parse(logs.RFC3339NanoFixed, string(first))
	return stamp, rest, err == nil
}

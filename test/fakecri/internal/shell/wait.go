// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// forever is the length of a wait that only a signal ends.
const forever time.Duration = -1

// wait lets time pass and handles signals meanwhile.
func (p *Proc) wait(ctx context.Context, d time.Duration) error {
	if err := p.pending(ctx); err != nil || d == 0 {
		return err
	}
	var done <-chan time.Time
	if d > 0 {
		t := p.Clock.NewTimer(d)
		defer t.Stop()
		done = t.C()
	}
	if p.Blocked != nil {
		p.Blocked(true)
		defer p.Blocked(false)
	}
	for {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case sig := <-p.Signals:
			if err := p.signal(ctx, sig); err != nil {
				return err
			}
		}
	}
}

// pending handles the signals that have already come.
func (p *Proc) pending(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case sig := <-p.Signals:
			if err := p.signal(ctx, sig); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (p *Proc) signal(ctx context.Context, sig Signal) error {
	handler, trapped := p.traps[sig]
	switch {
	case trapped && handler != nil:
		_, err := p.list(ctx, handler.body)
		return err
	case trapped || p.Init:
		return nil
	}
	return exited{Code: 143}
}

// background notes a sleep in the background; nothing else can be put there.
func (p *Proc) background(argv []string) error {
	if len(argv) != 2 || argv[0] != "sleep" {
		return fmt.Errorf("only sleep can run in the background, not %q", argv)
	}
	d, err := duration(argv[1])
	if err != nil {
		return err
	}
	if d == forever || p.bg != forever && d > p.bg {
		p.bg = d
	}
	return nil
}

// duration reads what sleep takes: seconds, a Go duration, or "infinity".
func duration(s string) (time.Duration, error) {
	if s == "infinity" || s == "inf" {
		return forever, nil
	}
	if sec, err := strconv.ParseFloat(s, 64); err == nil && sec >= 0 {
		return time.Duration(sec * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("invalid number %q", s)
	}
	return d, nil
}

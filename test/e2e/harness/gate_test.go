// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bufio"
	"io"
	"net"
	"testing"
	"time"
)

// echo is a server that answers each line with the same, until the test ends.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	return l.Addr().String()
}

func TestGate(t *testing.T) {
	g := (&ControlPlane{Server: "https://" + echo(t)}).Gate(t)
	dial := func() (net.Conn, *bufio.Reader) {
		t.Helper()
		c, err := net.Dial("tcp", g.Server[len("https://"):])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c, bufio.NewReader(c)
	}
	say := func(c net.Conn, line string) {
		t.Helper()
		if _, err := io.WriteString(c, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(r *bufio.Reader, want string) {
		t.Helper()
		if got, err := r.ReadString('\n'); err != nil || got != want+"\n" {
			t.Fatalf("heard %q, %v, not %q", got, err, want)
		}
	}
	c, r := dial()
	say(c, "fair")
	hear(r, "fair")
	g.Set(Slow)
	began := time.Now()
	say(c, "slow")
	hear(r, "slow")
	if took := time.Since(began); took < 2*slowBy {
		t.Errorf("a slow way took %s both ways", took)
	}
	g.Set(Silent)
	say(c, "later")
	c.SetReadDeadline(time.Now().Add(slowBy))
	if got, err := r.ReadString('\n'); err == nil {
		t.Errorf("heard %q through silence", got)
	}
	c.SetReadDeadline(time.Time{})
	g.Set(Fair)
	hear(r, "later")
	g.Set(Refusing)
	for _, r := range []*bufio.Reader{r, func() *bufio.Reader { _, r := dial(); return r }()} {
		if got, err := r.ReadString('\n'); err == nil {
			t.Errorf("heard %q though all is refused", got)
		}
	}
	g.Set(Fair)
	c, r = dial()
	say(c, "again")
	hear(r, "again")
}

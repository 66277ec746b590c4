// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"net"
	"os"
	"testing"
)

// held is a listening socket of somebody else's, of a port that was asked for: one
// that the kernel chose is lost when the socket is shut.
func held(t *testing.T, network, host string) (file *os.File, port string) {
	t.Helper()
	l, err := net.Listen(network, net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	chosen := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = net.Listen(network, chosen); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if file, err = l.(*net.TCPListener).File(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return file, port
}

// reaches sends a word to an address and has it read by whoever accepts next.
func reaches(t *testing.T, l func() net.Listener, address, word string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatalf("%s: %v", word, err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(word)); err != nil {
		t.Fatal(err)
	}
	listener := l() // only now: until then the caller waits in the queue
	defer listener.Close()
	got, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	buffer := make([]byte, len(word))
	if _, err := got.Read(buffer); err != nil || string(buffer) != word {
		t.Errorf("%q, %v, want %q", buffer, err, word)
	}
}

func TestInheritedSockets(t *testing.T) {
	file, port := held(t, "tcp", "127.0.0.1")
	address := "127.0.0.1:" + port
	sockets := inherited{file}
	take := func() net.Listener {
		t.Helper()
		l, err := sockets.listener(address)
		if l == nil || err != nil {
			t.Fatalf("not taken: %v", err)
		}
		return l
	}
	reaches(t, take, address, "first")
	reaches(t, take, address, "after a restart")
	if l, err := sockets.listener("127.0.0.1:1"); l != nil || err != nil {
		t.Errorf("another port: %v, %v", l, err)
	}
	sockets.shut([]string{address})
	reaches(t, take, address, "still wanted")
	sockets.shut([]string{"127.0.0.1:1"})
	if conn, err := net.Dial("tcp", address); err == nil {
		_ = conn.Close()
		t.Error("a socket that was shut takes connections")
	}
	sockets.shut(nil) // once more
	l := take()
	reaches(t, func() net.Listener { return l }, address, "wanted again")
}

func TestServes(t *testing.T) {
	four, port4 := held(t, "tcp4", "0.0.0.0")
	six, port6 := held(t, "tcp", "::")
	one, port1 := held(t, "tcp", "127.0.0.1")
	for _, test := range []struct {
		name, address string
		file          *os.File
		want          bool
	}{
		{"all of IPv4", "0.0.0.0:" + port4, four, true},
		{"all of IPv6 by IPv4's", "[::]:" + port4, four, false},
		{"one by all", "127.0.0.1:" + port4, four, false},
		{"all of IPv4 by IPv6's", "0.0.0.0:" + port6, six, true},
		{"all of IPv6", "[::]:" + port6, six, true},
		{"another port", "0.0.0.0:" + port6, four, false},
		{"one", "127.0.0.1:" + port1, one, true},
		{"all by one", "0.0.0.0:" + port1, one, false},
		{"another one", "127.0.0.2:" + port1, one, false},
		{"no address", "nonsense", one, false},
	} {
		if got := serves(test.file, test.address); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}

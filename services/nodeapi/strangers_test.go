// SPDX-License-Identifier: Apache-2.0

package nodeapi_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sextant-node/sextant/services/nodeapi"
	"github.com/sextant-node/sextant/test/standin"
)

// from is a client at an address of loopback, by HTTP/2 or HTTP/1.1.
func (r *rig) from(ip string, w who, http2 bool) *http.Client {
	r.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	transport := &http.Transport{TLSClientConfig: callerTLS(w), ForceAttemptHTTP2: http2, DialContext: dialer.DialContext, MaxResponseHeaderBytes: 4 << 20}
	r.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask sends a request with headers; the code is 0 if there was no answer.
func (r *rig) ask(client *http.Client, path string, headers ...string) (code int, header http.Header) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.House.Context(), http.MethodGet, "https://"+address(r.port)+path, nil)
	if err != nil {
		r.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, nil
	}
	return resp.StatusCode, resp.Header
}

// TestHeadersOfStrangers: the API server may send what it may to a kubelet, and
// everybody else less.
func TestHeadersOfStrangers(t *testing.T) {
	r := newRig(t, alwaysAllow)
	certified := who{certificate: r.ca.sign(t, "api-server", time.Hour, x509.ExtKeyUsageClientAuth)}
	uncertified := who{certificate: newAuthority(t).sign(t, "api-server", time.Hour, x509.ExtKeyUsageClientAuth)}
	for _, http2 := range []bool{false, true} {
		for _, test := range []struct {
			who  who
			size int
			code int
		}{
			{who{}, 60 << 10, 200}, {who{}, 80 << 10, 431}, {uncertified, 60 << 10, 401}, {uncertified, 80 << 10, 431},
			{certified, 80 << 10, 200}, {certified, 900 << 10, 200}, {certified, 1100 << 10, 431},
		} {
			code, _ := r.ask(r.from("127.0.0.1", test.who, http2), "/healthz/ping", "X-Long", strings.Repeat("x", test.size))
			if code != test.code && (!http2 || test.code != 431 || code != 0) { // where the client does not even send it
				t.Errorf("HTTP/2 %v, certified %v, %d bytes: %d, want %d", http2, test.who == certified, test.size, code, test.code)
			}
		}
	}
}

// TestStrangersCostNobodyAnAnswer: with as many reviews under way as there may be,
// another one is refused at once, and who needs none is served.
func TestStrangersCostNobodyAnAnswer(t *testing.T) {
	r := newRig(t, nil)
	r.reviews.set(func(v *reviews) { v.allow["alice get healthz"], v.allow["api-server get healthz"] = true, true })
	certified := who{certificate: r.ca.sign(t, "api-server", time.Hour, x509.ExtKeyUsageClientAuth)}
	own, alice := r.from("127.0.0.1", certified, true), r.from("127.0.0.1", who{}, true)
	good := []string{"Authorization", "Bearer good"}
	for name, client := range map[string]*http.Client{"a certified caller": own, "a caller with a token": alice} {
		if code, _ := r.ask(client, "/healthz/ping", good...); code != 200 {
			t.Fatalf("%s: %d", name, code)
		}
	}
	release := make(chan struct{})
	r.reviews.set(func(v *reviews) { v.wait = release })
	known, _ := r.reviews.counts()
	const addresses, each = 4, 16
	codes := make(chan int)
	for i := range addresses {
		flooder := r.from(fmt.Sprintf("127.0.0.%d", 2+i), who{}, true)
		for j := range each {
			go func() {
				code, _ := r.ask(flooder, "/pods", "Authorization", fmt.Sprintf("Bearer bad-%d-%d", i, j))
				codes <- code
			}()
		}
	}
	r.Eventually("the reviews are under way", func() bool { n, _ := r.reviews.counts(); return n-known == addresses*each })
	for ip, client := range map[string]*http.Client{"127.0.0.2": r.from("127.0.0.2", who{}, true), "127.0.0.9": r.from("127.0.0.9", who{}, false)} {
		code, header := r.ask(client, "/pods", "Authorization", "Bearer one-more")
		if code != http.StatusTooManyRequests || header.Get("Retry-After") != "1" {
			t.Errorf("one more from %s: %d %v, want 429 and when to come again", ip, code, header)
		}
	}
	for name, client := range map[string]*http.Client{"a certified caller": own, "a caller whose token is known": alice} {
		if code, _ := r.ask(client, "/healthz/ping", good...); code != 200 {
			t.Errorf("%s meanwhile: %d", name, code)
		}
	}
	close(release)
	for range addresses * each {
		if code := <-codes; code != 401 {
			t.Errorf("one who was reviewed: %d", code)
		}
	}
	if code, _ := r.ask(alice, "/pods", "Authorization", "Bearer bad-later"); code != 401 {
		t.Errorf("afterwards: %d", code)
	}
}

// TestLongHandshake: a certificate as large as TLS has them is not read to its end.
func TestLongHandshake(t *testing.T) {
	r := newRig(t, alwaysAllow)
	for size, want := range map[int]bool{16 << 10: true, 40 << 10: false, 200 << 10: false} {
		resp, err := r.from("127.0.0.1", who{certificate: selfSigned(t, size)}, false).Get("https://" + address(r.port) + "/healthz/ping")
		if (err == nil) != want {
			t.Errorf("a certificate of %d bytes: %v, want a connection: %v", size, err, want)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
	}
	r.answers()
}

// selfSigned is a stranger's certificate of some size.
func selfSigned(t *testing.T, size int) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stranger"}, DNSNames: []string{strings.Repeat("x", size)},
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestPlainHTTP: who takes the port for one without TLS is told so, as by the kubelet.
func TestPlainHTTP(t *testing.T) {
	r := newRig(t, alwaysAllow)
	expect(t, "http to the HTTPS port", r.plain(r.port, "/healthz"), 400, "Client sent an HTTP request to an HTTPS server.\n")
}

// TestTheLogUnderAFlood: whatever strangers do, the log grows by no more than a
// megabyte a minute, and tells of what it leaves out.
func TestTheLogUnderAFlood(t *testing.T) {
	in, log := standin.New(t), &logBuffer{}
	in.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r := newRigOf(t, in, nodeapi.Config{NodeName: "n1"}, nil)
	began, before := time.Now(), len(log.String())
	badCertificate := r.from("127.0.0.2", who{certificate: selfSigned(t, 100)}, true)
	long := "/pods/" + strings.Repeat("%22%00", 7000) // each a character that is escaped
	told := func() bool {
		for line := range strings.Lines(log.String()[before:]) {
			var said struct {
				Message    string `json:"msg"`
				Path       string
				Suppressed int
			}
			if err := json.Unmarshal([]byte(line), &said); err != nil {
				t.Fatalf("%v: %q", err, line)
			}
			if len(said.Path) > 300 {
				t.Fatalf("a path of %d bytes was logged", len(said.Path))
			}
			if said.Message == "caller not identified" && said.Suppressed > 0 {
				return true
			}
		}
		return false
	}
	r.Eventually("a line that tells how many others there were", func() bool {
		for range 20 {
			if code, _ := r.ask(badCertificate, long); code != 401 {
				t.Fatalf("a bad certificate: %d", code)
			}
		}
		r.ask(r.from("127.0.0.3", who{}, false), long)                                                        // no credentials
		r.ask(r.from("127.0.0.4", who{certificate: selfSigned(t, 40<<10)}, false), "/")                       // a handshake that fails
		if resp, err := http.Get("http://" + address(r.port) + "/" + strings.Repeat("x", 4000)); err == nil { // no TLS
			_ = resp.Body.Close()
		}
		garbage := r.dial(who{})
		_, _ = io.WriteString(garbage, "GET /"+strings.Repeat("\x01", 60_000)+" HTTP/1.1\r\nHost: \xff\r\n\r\n") // hung up on, perhaps
		_, _ = io.Copy(io.Discard, garbage)
		_ = garbage.Close()
		return told()
	})
	grown, most := len(log.String())-before, int(time.Since(began).Seconds()+2)*(1<<20)/60
	if grown > most {
		t.Errorf("the log grew by %d bytes in %s, at most %d are promised", grown, time.Since(began), most)
	}
	if strings.Count(log.String()[before:], "handshake failed") == 0 {
		t.Error("nothing is said of handshakes: the test does not see it all")
	}
	if bytes.Contains([]byte(log.String()), []byte(strings.Repeat("x", 1000))) {
		t.Error("a stranger's text was written whole")
	}
}

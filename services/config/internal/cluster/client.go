// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // the clients are measured
)

// dialTimeout of a connection, and how often it is probed while nothing is said.
const dialTimeout = 30 * time.Second

// Silence after which client-go asks over a connection whether it still carries, and how
// long it waits for the answer, in seconds. Its own 30 and 15 are longer than a Lease
// lasts; a kubelet gives its connections up after two heartbeats that were not answered.
const (
	pingAfter   = "10"
	pingTimeout = "10"
)

// healthChecks sets the two for this process, where the user has not: client-go takes
// them from the environment only.
var healthChecks = sync.OnceFunc(func() {
	for name, value := range map[string]string{
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": pingAfter,
		"HTTP2_PING_TIMEOUT_SECONDS":      pingTimeout,
	} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, value) // fails for malformed names only
		}
	}
})

// Settings of the client, from kubelet flags and configuration.
type Settings struct {
	// QPS and Burst are kubeAPIQPS and kubeAPIBurst.
	QPS   int32
	Burst int32
	// ContentType is contentType.
	ContentType string
	UserAgent   string
}

// Clients are clients of one API server, over the same connections. Each has the
// limit of the settings for itself, so that one use does not delay another.
type Clients struct {
	// Clientset is for what pods wait for.
	*kubernetes.Clientset
	// Reviews is for reviews of the node API's callers, who may be strangers.
	Reviews *kubernetes.Clientset
	// Claims is for objects that are asked for again and again.
	Claims *kubernetes.Clientset
}

// Client makes clients of a self-contained kubeconfig. No connection is made
// yet; closing ends those that were made.
//
// A connection on which nothing comes back is given up after 20 s (HTTP/2
// health checks of client-go), a dial after 30 s.
func (s Settings) Client(kubeconfig []byte) (clients *Clients, closing func(), err error) {
	healthChecks()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config.QPS, config.Burst = float32(s.QPS), int(s.Burst)
	config.ContentType = s.ContentType
	if s.ContentType != "" {
		config.AcceptContentTypes = s.ContentType + "," + "application/json"
	}
	config.UserAgent = s.UserAgent
	config.WarningHandlerWithContext = rest.NoWarnings{}
	// Connections of its own, so that they end with the credential.
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext)
	config.Dial = dialer.DialContext
	connections, err := rest.HTTPClientFor(config)
	clients = &Clients{}
	for _, c := range []**kubernetes.Clientset{&clients.Clientset, &clients.Reviews, &clients.Claims} {
		if err == nil {
			*c, err = kubernetes.NewForConfigAndClient(config, connections)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return clients, dialer.CloseAll, nil
}

package cluster

import (
	"fmt"
	"net"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // the clients are measured
)

// dialTimeout of a connection, and how often it is probed while nothing is said.
const dialTimeout = 30 * time.Second

// Settings of the client, from kubelet flags and configuration.
type Settings struct {
	// QPS and Burst are kubeAPIQPS and kubeAPIBurst.
	QPS   int32
	Burst int32
	// ContentType is contentType.
	ContentType string
	UserAgent   string
}

// Client makes a client of a self-contained kubeconfig. No connection is made
// yet; closing ends those that were made.
//
// A connection on which nothing comes back is given up after 45 s (HTTP/2
// health checks of client-go), a dial after 30 s.
func (s Settings) Client(kubeconfig []byte) (client *kubernetes.Clientset, closing func(), err error) {
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
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return client, dialer.CloseAll, nil
}

package cluster

import (
	"crypto/sha256"
	"fmt"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Settings of the client, from kubelet flags and configuration.
type Settings struct {
	// Kubeconfig is the path of the credentials.
	Kubeconfig string
	// QPS and Burst are kubeAPIQPS and kubeAPIBurst.
	QPS   int32
	Burst int32
	// ContentType is contentType.
	ContentType string
	UserAgent   string
}

// credentials are what a client is made of.
type credentials struct {
	config *rest.Config
	// files were read; sum is of what was in them.
	files []string
	sum   [sha256.Size]byte
}

// read reads the credentials.
func (s Settings) read() (credentials, error) {
	c := credentials{files: []string{s.Kubeconfig}}
	hash := sha256.New()
	data, err := os.ReadFile(s.Kubeconfig)
	if err != nil {
		return c, fmt.Errorf("kubeconfig: %w", err)
	}
	hash.Write(data)
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: s.Kubeconfig}, &clientcmd.ConfigOverrides{})
	config, err := loader.ClientConfig()
	if err != nil {
		return c, fmt.Errorf("kubeconfig %s: %w", s.Kubeconfig, err)
	}
	if config.CAFile != "" {
		c.files = append(c.files, config.CAFile)
		data, err := os.ReadFile(config.CAFile)
		if err != nil {
			return c, fmt.Errorf("kubeconfig %s: certificate-authority: %w", s.Kubeconfig, err)
		}
		hash.Write(data)
	}
	// A certificate that is not there yet is waited for; one that changes later
	// is read again by client-go.
	for _, name := range []string{config.CertFile, config.KeyFile} {
		if name == "" {
			continue
		}
		if _, err := os.Stat(name); err != nil {
			c.files = append(c.files, name)
			return c, fmt.Errorf("kubeconfig %s: client certificate: %w", s.Kubeconfig, err)
		}
	}
	hash.Sum(c.sum[:0])
	c.config = config
	return c, nil
}

// client makes a client of credentials that were read. No connection is made
// yet.
func (s Settings) client(c credentials, err error) (*kubernetes.Clientset, error) {
	if err != nil {
		return nil, err
	}
	c.config.QPS, c.config.Burst = float32(s.QPS), int(s.Burst)
	c.config.ContentType = s.ContentType
	if s.ContentType != "" {
		c.config.AcceptContentTypes = s.ContentType + "," + "application/json"
	}
	c.config.UserAgent = s.UserAgent
	c.config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", s.Kubeconfig, err)
	}
	return client, nil
}

package cluster

import (
	"crypto/sha256"
	"errors"
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

// credentials is a client and what it was made of.
type credentials struct {
	client *kubernetes.Clientset
	// files were read; sum is of what was in them.
	files []string
	sum   [sha256.Size]byte
}

// connect reads the credentials. No connection is made.
func (s Settings) connect() (credentials, error) {
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
		if data, err := os.ReadFile(config.CAFile); err == nil {
			hash.Write(data)
		}
	}
	// A certificate that appears later needs a new client; one that changes does not.
	for _, name := range []string{config.CertFile, config.KeyFile} {
		if _, err := os.Stat(name); name != "" && errors.Is(err, os.ErrNotExist) {
			c.files = append(c.files, name)
			return c, fmt.Errorf("kubeconfig %s: %w", s.Kubeconfig, err)
		}
	}
	hash.Sum(c.sum[:0])
	config.QPS, config.Burst = float32(s.QPS), int(s.Burst)
	config.ContentType = s.ContentType
	if s.ContentType != "" {
		config.AcceptContentTypes = s.ContentType + "," + "application/json"
	}
	config.UserAgent = s.UserAgent
	config.WarningHandlerWithContext = rest.NoWarnings{}
	c.client, err = kubernetes.NewForConfig(config)
	if err != nil {
		return c, fmt.Errorf("kubeconfig %s: %w", s.Kubeconfig, err)
	}
	return c, nil
}

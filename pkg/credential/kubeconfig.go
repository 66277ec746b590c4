// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Names the kubelet gives the parts of the kubeconfig it writes.
const (
	clusterName = "default-cluster"
	userName    = "default-auth"
	contextName = "default-context"
)

// Kubeconfig is one cluster and one user that need no other file.
type Kubeconfig struct {
	cluster   clientcmdapi.Cluster
	user      clientcmdapi.AuthInfo
	namespace string
	// certFile is where the certificate was read from.
	certFile string
}

// Load reads a kubeconfig and the files its current context names. The files are
// returned even with an error, so that the caller can wait for them; those of an exec
// plugin are not among them.
func Load(path string) (k *Kubeconfig, files []string, err error) {
	files = []string{path}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, files, fmt.Errorf("kubeconfig: %w", err)
	}
	fail := func(err error) (*Kubeconfig, []string, error) {
		return nil, files, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return fail(err)
	}
	k, err = current(config)
	if err != nil {
		return fail(err)
	}
	k.certFile = k.user.ClientCertificate
	for _, part := range []struct {
		name string
		path *string
		data *[]byte
	}{
		{"certificate-authority", &k.cluster.CertificateAuthority, &k.cluster.CertificateAuthorityData},
		{"client-certificate", &k.user.ClientCertificate, &k.user.ClientCertificateData},
		{"client-key", &k.user.ClientKey, &k.user.ClientKeyData},
	} {
		if len(*part.data) == 0 && *part.path != "" {
			files = append(files, *part.path)
			if *part.data, err = os.ReadFile(*part.path); err != nil {
				return fail(fmt.Errorf("%s: %w", part.name, err))
			}
		}
		*part.path = ""
	}
	if k.user.TokenFile != "" {
		files = append(files, k.user.TokenFile)
		token, err := os.ReadFile(k.user.TokenFile)
		if err != nil {
			return fail(fmt.Errorf("tokenFile: %w", err))
		}
		k.user.Token, k.user.TokenFile = strings.TrimSpace(string(token)), ""
	}
	if err := k.check(); err != nil {
		return fail(err)
	}
	return k, files, nil
}

// current is the cluster and the user of the current context.
func current(config *clientcmdapi.Config) (*Kubeconfig, error) {
	// It knows every way in which a kubeconfig can be incomplete.
	if _, err := clientcmd.NewDefaultClientConfig(*config, &clientcmd.ConfigOverrides{}).ClientConfig(); err != nil {
		return nil, err
	}
	context, ok := config.Contexts[config.CurrentContext]
	if !ok {
		return nil, errors.New("current-context: no context is named")
	}
	k := &Kubeconfig{namespace: context.Namespace}
	if cluster := config.Clusters[context.Cluster]; cluster != nil {
		k.cluster = *cluster
	}
	if user := config.AuthInfos[context.AuthInfo]; user != nil {
		k.user = *user
	}
	k.cluster.LocationOfOrigin, k.user.LocationOfOrigin = "", ""
	return k, nil
}

// check finds what would fail only at the first connection.
func (k *Kubeconfig) check() error {
	if data := k.cluster.CertificateAuthorityData; len(data) > 0 && !x509.NewCertPool().AppendCertsFromPEM(data) {
		return errors.New("certificate-authority: holds no certificate")
	}
	if !k.HasCertificate() {
		return nil
	}
	if _, err := tls.X509KeyPair(k.user.ClientCertificateData, k.user.ClientKeyData); err != nil {
		return fmt.Errorf("client-certificate: %w", err)
	}
	return nil
}

// HasCertificate reports whether the user is known by a client certificate, and
// not by a token, a password or a plugin.
func (k *Kubeconfig) HasCertificate() bool { return len(k.user.ClientCertificateData) > 0 }

// IsAnonymous reports whether there is nothing the user could be known by.
func (k *Kubeconfig) IsAnonymous() bool {
	u := k.user
	return !k.HasCertificate() && u.Token == "" && u.Username == "" && u.Exec == nil && u.AuthProvider == nil
}

// CertificateFile is the file the client certificate was read from, or empty.
func (k *Kubeconfig) CertificateFile() string { return k.certFile }

// Leaf is the client certificate, or nil; so it is without a kubeconfig.
func (k *Kubeconfig) Leaf() *x509.Certificate {
	if k == nil {
		return nil
	}
	pair, err := tls.X509KeyPair(k.user.ClientCertificateData, k.user.ClientKeyData)
	if err != nil {
		return nil
	}
	return pair.Leaf
}

// WithCertificate is the same cluster with another user: the one a PEM of
// certificates and their key is of.
func (k *Kubeconfig) WithCertificate(pair []byte) *Kubeconfig {
	return &Kubeconfig{
		cluster: k.cluster, namespace: k.namespace,
		user: clientcmdapi.AuthInfo{ClientCertificateData: pair, ClientKeyData: pair},
	}
}

// Encode is the kubeconfig as YAML. Equal credentials have equal bytes.
func (k *Kubeconfig) Encode() ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[clusterName] = &k.cluster
	config.AuthInfos[userName] = &k.user
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: clusterName, AuthInfo: userName, Namespace: k.namespace}
	config.CurrentContext = contextName
	return clientcmd.Write(*config)
}

// Published is the kubeconfig the kubelet writes for its node after a
// bootstrap: the cluster, and a user whose certificate and key are in a file
// that is replaced at each rotation.
func (k *Kubeconfig) Published(pairFile string) ([]byte, error) {
	return (&Kubeconfig{
		cluster: k.cluster, namespace: k.namespace,
		user: clientcmdapi.AuthInfo{ClientCertificate: pairFile, ClientKey: pairFile},
	}).Encode()
}

// Package cluster is the connection to the API server: the credentials of the
// kubeconfig file, a client made of them, and one way to follow resources.
//
// The client is made anew when the kubeconfig or a CA file it names changes on
// disk; client certificates and token files are read again by client-go itself.
// A file that is missing or wrong is reported and waited for; a client that
// works is not given up for it. Nothing here
// fails because the API server is away.
package cluster

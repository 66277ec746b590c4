// Package netfile makes what a pod reads about names: its /etc/hosts, its DNS settings
// and its hostname. Text in, text out; whoever reads or writes the files passes the
// content.
package netfile

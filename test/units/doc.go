// Package units holds the systemd units against what they promise.
package units

// Package nodelog serves the node's own logs: the files below /var/log, and the
// node log query, which asks the journal for services and falls back on files
// named like them (KEP-2258).
//
// It owns nothing and keeps nothing. It promises that no path, link or name
// leads out of the log folder, that what is not a plain file or a folder is
// never opened for reading, that nothing but journalctl is executed and nothing
// a caller says becomes one of its options, and that a query ends within its
// deadline. What the process may not read is "forbidden".
package nodelog

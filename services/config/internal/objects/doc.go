// Package objects keeps the API objects that the node's pods need: it follows
// each of them for as long as it is wanted, and tells every change.
//
// ConfigMaps, Secrets, classes, drivers and the Node are watched one by one, as
// the node authorizer demands; claims, volumes and attachments, which a node
// may only get, are asked for again and again; all Services come by one watch and only those
// of wanted namespaces are told.
//
// An object that was read once stays while the API server is away; "does not
// exist" is told only when the API server said so. After a restart the objects
// kept on disk are there at once (Restore) and are told again until the API
// server says otherwise.
package objects

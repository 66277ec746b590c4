package pod

import "time"

// EventReminder is how often an event of a pod is made again while what it tells of
// lasts: the API server forgets events after an hour, and client-go's recorder lets
// one about an object through in this time.
const EventReminder = 5 * time.Minute

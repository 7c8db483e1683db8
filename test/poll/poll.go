// Package poll repeats a question until its answer is yes.
package poll

import "time"

// longest is the longest pause between two questions.
const longest = 4 * time.Second

// Until asks until so says yes, or until the limit has passed; it returns which. It waits for Pause between two
// questions.
func Until(limit, pause time.Duration, so func() bool) bool {
	for end := time.Now().Add(limit); ; {
		asked := time.Now()
		if so() {
			return true
		}
		if asked.After(end) {
			return false
		}
		time.Sleep(Pause(asked, pause))
	}
}

// Pause is how long to wait after a question that was asked then: four times as long as the answer took, and least at
// least. Many tests wait at the same time, and a test that asks all the time takes the processors from what the others
// wait for.
func Pause(asked time.Time, least time.Duration) time.Duration {
	return max(least, min(4*time.Since(asked), longest))
}

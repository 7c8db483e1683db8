//go:build race

package sim

// raceDetector: this binary runs under Go's race detector, whose memory lies
// where AddressSanitizer wants its own.
const raceDetector = true

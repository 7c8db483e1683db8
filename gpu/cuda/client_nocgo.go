//go:build !cgo

package cuda

import "io"

// Main says that this program was built without cgo.
func Main(_ []string, _ io.Reader, out io.Writer) int {
	t := teller{out}
	t.say(line{Step: &Step{Name: StepLoad, Code: NotLoaded, Result: "not built",
		Text: "this program was built without cgo: install a packaged gpuslotd"}})
	t.say(line{Tried: true})
	return 1
}

package advise

import (
	"strings"

	"github.com/gpuslot/gpuslot/agent/record"
)

// Key is what the jobs of a class have in common beside their request_vram: who
// runs them for whom, what they run, and on how many GPUs. Program and Batch
// are families: what only numbers the runs is "#".
type Key struct {
	User    string `json:"user,omitempty"`
	Group   string `json:"group,omitempty"`
	Program string `json:"program,omitempty"`
	Batch   string `json:"batch,omitempty"`
	// GPUs is 1 where the request is not known: a record is of one GPU.
	GPUs int `json:"gpus"`
}

func keyOf(j record.Job) Key {
	k := Key{User: shown(j.Owner), Group: shown(j.Group), Program: Family(j.Program), Batch: Family(j.Batch), GPUs: 1}
	if g := j.Requested.GPUs; g != nil && *g > 1 && *g <= mostGPUs {
		k.GPUs = int(*g + 0.5)
	}
	return k
}

// mostGPUs is more than any node has.
const mostGPUs = 1024

// longestName is where names are cut.
const longestName = 64

// Family is a name without what only tells runs apart: each word of a name, which
// letters and digits make, becomes "#" if it is a number, or hexadecimal with a
// digit and of eight characters or more; digits that end a word go the same way.
func Family(name string) string {
	var b strings.Builder
	for word := range words(shown(name)) {
		b.WriteString(numberless(word))
	}
	return b.String()
}

// words yields runs of letters and digits, and what is between them.
func words(s string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for from := 0; from < len(s); {
			to, is := from+1, alphanumeric(s[from])
			for to < len(s) && alphanumeric(s[to]) == is {
				to++
			}
			if !yield(s[from:to]) {
				return
			}
			from = to
		}
	}
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// hexadecimalWord is from how many characters on a word may be a random name.
const hexadecimalWord = 8

func numberless(word string) string {
	if !alphanumeric(word[0]) {
		return word
	}
	stem := strings.TrimRight(word, "0123456789")
	random := len(word) >= hexadecimalWord && strings.ContainsAny(word, "0123456789") &&
		strings.Trim(word, "0123456789abcdefABCDEF") == ""
	switch {
	case stem == "" || random:
		return "#"
	case len(stem) < len(word) && len(stem) > 1:
		// python3 and resnet50 are names; run17 is one run of many.
		if digits := len(word) - len(stem); digits > 2 || stem == "run" || stem == "job" || stem == "seed" || stem == "fold" {
			return stem + "#"
		}
	}
	return word
}

// shown is a name for tables: no control characters, not endless. Users choose it.
func shown(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if r := []rune(s); len(r) > longestName {
		return string(r[:longestName-1]) + "…"
	}
	return s
}

package usage

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestStarted(t *testing.T) {
	own, err := procFS{root: "/proc"}.started(os.Getpid())
	if err != nil || own == 0 {
		t.Fatalf("%d, %v", own, err)
	}
	const rest = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21\n"
	const threads2, threads1 = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 2 18 4711\n", " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 1 18 4711\n"
	for text, want := range map[string]uint64{
		"7 (a) Z" + threads2:        4711, // its first thread alone has ended
		"7 (a) Z" + threads1:        0,
		"7 (a) S" + threads1:        4711,
		"7 (a) X" + threads2:        0,
		"7 (a) S" + rest:            4711,
		"7 (a b) c) R" + rest:       4711,
		"7 (a) S 1 2 3":             0,
		"7 (a":                      0,
		"7 (a) S 1 2 3 4 5 6\x00 7": 0,
		"":                          0,
	} {
		got, err := parseStarted([]byte(text))
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
}

// What is accepted has 22 fields, of which the last is a number.
func FuzzParseStarted(f *testing.F) {
	f.Add([]byte("7 (a b) c) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21\n"))
	f.Add([]byte("7 (a) S 1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := parseStarted(b)
		if err != nil {
			return
		}
		words := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(words) < 20 || string(bytes.TrimLeft(words[19], "0")) != strings.TrimLeft(fmt.Sprint(n), "0") {
			t.Fatalf("%q is said to have started at %d", b, n)
		}
	})
}

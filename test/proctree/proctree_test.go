package proctree

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestReaders: who reads the tree while a test changes it finds whole processes.
func TestReaders(t *testing.T) {
	tree := New(t)
	var ended atomic.Bool
	read := make(chan int)
	go func() {
		found := 0
		for !ended.Load() {
			files, _ := filepath.Glob(filepath.Join(tree.Root, "*[0-9]", "stat"))
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					continue // it ended meanwhile
				}
				found++
				if !strings.HasSuffix(string(text), " 0\n") {
					t.Errorf("%s has %q", file, text)
				}
			}
		}
		read <- found
	}()
	for i := range 100 {
		tree.Add(Process{PID: 10 + i%3, Parent: 1, Comm: "job"})
		tree.Add(Process{PID: 10 + i%3, Parent: 1, Comm: "job", State: "Z"})
		if i%2 == 0 {
			tree.End(10 + i%3)
		}
	}
	ended.Store(true)
	if <-read == 0 {
		t.Error("nothing was read")
	}
}

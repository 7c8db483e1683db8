package store

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// What was written is read in order, over rotations, within the bound, and past
// a torn line.
func TestLog(t *testing.T) {
	l := Log{Dir: t.TempDir() + "/new", Name: "events", Size: 100, Older: 2}
	for i := range 40 {
		if err := l.Append(fmt.Appendf(nil, "{\"n\":%d}\n", i)); err != nil {
			t.Fatal(err)
		}
	}
	numbers := func() (all []int) {
		var v struct{ N *int }
		err := l.Read(func(line []byte) {
			v.N = nil
			if json.Unmarshal(line, &v) == nil && v.N != nil {
				all = append(all, *v.N)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	got := numbers()
	for i, n := range got {
		if n != 40-len(got)+i {
			t.Fatalf("read %v: not the last ones in order", got)
		}
	}
	if len(got) < 20 || len(got) > 34 {
		t.Errorf("%d lines are left; 3 files of 100 bytes hold 20 to 34", len(got))
	}
	files, err := os.ReadDir(l.Dir)
	if err != nil || len(files) != 3 {
		t.Errorf("%d files, want 3 (%v)", len(files), err)
	}
	f, err := os.OpenFile(l.Path(0), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"n":9`)
	_ = f.Close()
	if err := l.Append([]byte("{\"n\":40}\n")); err != nil {
		t.Fatal(err)
	}
	if got := numbers(); got[len(got)-1] != 40 || got[len(got)-2] != 39 {
		t.Errorf("after a torn line: %v", got)
	}
	if info, err := os.Stat(l.Path(0)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: lines name users, only root may read them", info.Mode(), err)
	}
}

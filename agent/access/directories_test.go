package access

import (
	"os"
	"testing"
)

// TestAccessOnDisk: access is found below the run directory, whoever gave it.
func TestAccessOnDisk(t *testing.T) {
	root := t.TempDir()
	d := PipeDirectories{root}
	if all, err := (PipeDirectories{root + "/none"}).Admitted(); len(all) > 0 || err != nil {
		t.Error(all, err)
	}
	for _, dir := range []string{string(uuid(0)), string(uuid(1)), "mps-flags"} {
		if err := os.Mkdir(root+"/"+dir, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Admit(uuid(1), 1001); err != nil {
		t.Skipf("no ACL can be set here: %v", err)
	}
	if all, err := d.Admitted(); len(all) != 1 || all[0] != (Entry{uuid(1), 1001}) || err != nil {
		t.Error(all, err)
	}
}

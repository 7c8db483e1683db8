package plan

import (
	"strconv"
	"strings"
	"testing"
)

// FuzzVersions: a driver's branch and a CUDA version are numbers or unknown.
func FuzzVersions(f *testing.F) {
	for _, s := range []string{"550.163.01", "13.1", "12.4", "99999999999.1", "-1.2", "13", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		major, minor := leadingVersion(s)
		if major < 0 || minor < 0 || driverMajor(s) != major || major > 0 && !strings.HasSuffix(strings.SplitN(s, ".", 2)[0], strconv.Itoa(major)) {
			t.Errorf("%q is %d.%d", s, major, minor)
		}
		if n := ClientCeiling(s); n != 47 && n != 59 || n == 59 && major > 0 && major < 13 {
			t.Errorf("CUDA %q takes %d clients", s, n)
		}
	})
}

package cgroup

import (
	"regexp"
	"strings"
	"testing"
)

// The lines were recorded on 25.14.1 and 23.9.6.
func TestSlotIn(t *testing.T) {
	for text, want := range map[string]string{
		"0::/htcondor/_var_lib_condor_execute_slot1_1@pool.test.slice/_var_lib_condor_execute_slot1_1@pool.test.scope\n": "slot1_1@pool.test",
		"0::/htcondor/_var_lib_condor_execute_slot1_1@pool.test.slice/sshd.slice/sshd.scope\n":                           "slot1_1@pool.test",
		"0::/htcondor/condor_var_lib_condor_execute_slot1_12@pool.test\n":                                                "slot1_12@pool.test",
		"0::/system.slice/condor.service/htcondor/_x_slot1_1@gpu0@pool.test.slice/_x_slot1_1@gpu0@pool.test.scope\n":     "slot1_1@gpu0@pool.test",
		"1:name=systemd:/\n0::/\n": "",
		"4:memory:/htcondor/condor_var_lib_condor_execute_slot3_1@pool.test\n0::/\n": "slot3_1@pool.test",
		// The unified hierarchy counts first, wherever it stands; without a slot in it another one does.
		"4:memory:/condor_x_slot3_1@h\n0::/htcondor/_e_slot1_1@h.slice\n":     "slot1_1@h",
		"0::/htcondor/_e_slot1_1@h.slice\n4:memory:/condor_x_slot3_1@h\n":     "slot1_1@h",
		"0::/\n4:memory:/condor_x_slot3_1@h\n5:cpu:/condor_x_slot4_1@h\n":     "slot3_1@h",
		"5:cpu:/\n4:memory:/condor_x_slot3_1@h\n0::/system.slice/a.service\n": "slot3_1@h",
		// Other names: STARTD_RESOURCE_PREFIX, and slots for files of several jobs.
		"0::/htcondor/_data_disk1_2_vm1_3@pool.test.slice/_data_disk1_2_vm1_3@pool.test.scope\n":                       "vm1_3@pool.test",
		"0::/htcondor/_var_lib_condor_execute_data101_1@h.test.slice/_var_lib_condor_execute_data101_1@h.test.scope\n": "data101_1@h.test",
		"0::/system.slice/system-my_getty.slice/my_getty@tty1.service\n":                                               "",
		// What a job makes below its own cgroup does not count.
		"0::/htcondor/_e_slot1_1@pool.test.slice/_e_slot2_2@pool.test.scope\n": "slot1_1@pool.test",
		"0::/user.slice/slot1_1@pool.test.scope\n":                             "",
		"":    "",
		"0::": "",
	} {
		if got := SlotIn([]byte(text)); got != want {
			t.Errorf("SlotIn(%q) = %q, want %q", text, got, want)
		}
	}
}

// FuzzSlotIn: an accepted slot has a slot's name and stands in the text.
func FuzzSlotIn(f *testing.F) {
	f.Add([]byte("0::/htcondor/_var_lib_condor_execute_slot1_1@pool.test.slice/_var_lib_condor_execute_slot1_1@pool.test.scope\n"))
	f.Add([]byte("4:memory:/htcondor/condor_x_slot3_1@h\n0::/\n"))
	f.Add([]byte("0::/_slot1_1@\n0:::::_slot1@a@b@c/"))
	f.Fuzz(func(t *testing.T, b []byte) {
		slot := SlotIn(b)
		if slot == "" {
			return
		}
		if name, _, _ := strings.Cut(slot, "@"); !regexp.MustCompile("^"+Name+"$").MatchString(name) || strings.ContainsAny(slot, "/\n :") || !strings.Contains(string(b), "_"+slot) {
			t.Errorf("SlotIn(%q) = %q", b, slot)
		}
	})
}

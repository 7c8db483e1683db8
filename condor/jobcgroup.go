package condor

import "strings"

// JobCgroups says whether HTCondor is set up to give each job a cgroup of its own: it is
// unless BASE_CGROUP is empty (HTCondor's vanilla_proc.cpp). Its default is "htcondor", so
// settings that are not known say yes.
func (s Settings) JobCgroups() bool {
	for _, name := range []string{"starter.base_cgroup", "base_cgroup"} {
		if set, ok := s[name]; ok {
			return strings.TrimSpace(set.Value) != ""
		}
	}
	return true
}

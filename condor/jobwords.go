package condor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// jobWords are the attributes of a slot's ad that its job's user writes, or can make
// long. They are asked for apart from what the slot has, so that no user's text can make
// that unknown.
var jobWords = []string{
	tenantAttributes[TenantGroup], tenantAttributes[TenantVO], "AccountingGroup", "RemoteUser", "GlobalJobId", "Cmd",
	"JobBatchName", "RequestGPUs", "RequestVRAM", "RequestCpus", "RequestMemory", "WantDocker",
}

// mostWords bounds them together, in bytes: a slot with more is left out of the answer.
// The path of a program alone has up to 4096.
const mostWords = 8192

// shorter is the constraint on ads that leaves those out where some attributes together
// have more than so many bytes. HTCondor prints what unparse gives: the text of an
// expression, not its value.
func shorter(most int, names ...string) string {
	return fmt.Sprintf("(%s <= %d) =!= false", size(names), most)
}

// shorterTarget does so for a question to a startd, whose ad is TARGET there. By itself
// unparse finds no attribute of that (25.14.1).
func shorterTarget(most int, names ...string) string {
	return fmt.Sprintf("(evalInEachContext(%s, {TARGET})[0] <= %d) =!= false", size(names), most)
}

func size(names []string) string {
	return "size(unparse(" + strings.Join(names, ")) + size(unparse(") + "))"
}

// hear adds what the startd says of the jobs in its slots, at the cost of a second
// question where there are jobs.
func hear(ctx context.Context, startd string, slots []Slot) {
	if !slices.ContainsFunc(slots, func(s Slot) bool { return s.JobID != "" }) {
		return
	}
	out, err := output(ctx, Startd{Name: startd}.Environment(), "condor_status", "-direct", "", "-json",
		"-constraint", shorterTarget(mostWords, jobWords...), "-attributes", "Name,JobId,"+strings.Join(jobWords, ","))
	addWords(slots, out, err)
}

// addWords reads the answer to that. Where it fails the slots stay, and say why their
// jobs' words are not known.
func addWords(slots []Slot, text string, err error) {
	var ads []classad.Ad
	if err == nil {
		ads, err = classad.ParseJSON(text)
	}
	jobs := map[string]*Slot{}
	for i := range slots {
		s := &slots[i]
		if s.JobID == "" {
			continue
		}
		jobs[s.Name] = s
		s.Unsaid = fmt.Sprintf("its ad has more than %d bytes that its job's user wrote, or the job has just changed",
			mostWords)
		if err != nil {
			s.Unsaid = err.Error()
		}
	}
	for _, ad := range ads {
		name, _ := ad.String("Name")
		id, _ := ad.String("JobId")
		if s := jobs[foreign.Word(name)]; s != nil && s.JobID == foreign.Word(id) {
			s.readWords(ad)
		}
	}
}

// readWords reads what an ad says of the slot's job.
func (s *Slot) readWords(ad classad.Ad) {
	group, _ := ad.String(tenantAttributes[TenantGroup])
	vo, _ := ad.String(tenantAttributes[TenantVO])
	s.Group, s.VO, s.Unsaid = foreign.Word(group), foreign.Word(vo), ""
	if odd := oddTenant(ad); odd != "" {
		s.Unsaid = odd
	}
	s.AccountingGroup = groupOf(ad, s.RemoteOwner)
	s.Program, s.Batch, s.Schedd = named(ad)
	s.Docker = inDocker(ad)
	s.RequestGPUs, s.RequestVRAM = number(ad, "RequestGPUs"), number(ad, "RequestVRAM")
	s.RequestCPUs, s.RequestMemory = number(ad, "RequestCpus"), number(ad, "RequestMemory")
}

// groupOf is the group in "group.user@domain", where a user without one has
// "user@domain".
func groupOf(ad classad.Ad, owner string) string {
	full, _ := ad.String("AccountingGroup")
	accountingUser, _ := ad.String("RemoteUser")
	for _, user := range []string{accountingUser, owner} { // the accounting user may be another
		if group, has := strings.CutSuffix(full, "."+user); has {
			return foreign.Word(group)
		}
	}
	return ""
}

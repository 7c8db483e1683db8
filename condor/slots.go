package condor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Slot is one slot in the startd's own words.
type Slot struct {
	// Name is "slot1_2@host".
	Name string
	// Type is "Partitionable", "Dynamic" or "Static".
	Type string
	// State is "Unclaimed", "Claimed", "Owner", …
	State string
	// JobID is "cluster.proc"; empty if no job runs.
	JobID string
	// RemoteOwner is "user@domain"; empty if unclaimed.
	RemoteOwner string
	// Group and VO are the job's (see Job), where the startd publishes them.
	Group, VO string
	// AssignedGPUs are the ids bound to the slot, repeated as the startd repeats them.
	AssignedGPUs []string
	// VRAM is what the slot has (dynamic) or has left (partitionable), in MiB;
	// nil if the ad does not say.
	VRAM *int64
	GPUs int64
	Cpus int64
	// Memory is main memory, as VRAM, in MiB.
	Memory int64
	// Unsaid is why Group, VO and the fields from Docker to AccountingGroup are not known,
	// which the job's user wrote; empty if they are.
	Unsaid string
	// Docker, Program, Batch and Schedd are those of Job; Schedd the startd always
	// publishes, the others and the requests where STARTD_JOB_ATTRS names them.
	Docker                                               bool
	Program, Batch, Schedd                               string
	RequestGPUs, RequestVRAM, RequestCPUs, RequestMemory *int64
	// AccountingGroup is the group in AccountingGroup, "group.user@domain"; empty if
	// the job has none, and always published.
	AccountingGroup string
	// StarterPID is the starter's, DeviceUUID the UUID of the one GPU of a slot,
	// without "GPU-"; 0 and empty where the ad does not say.
	StarterPID int64
	DeviceUUID string
	// Plan is the Startd.Plan that the startd runs with, Config what
	// ConfigOf says of the configuration it has read; empty if it has none of
	// gpuslot's.
	Plan, Config string
	// Layout is a partitionable slot in words, with its slot type and all that it
	// has; empty of other slots.
	Layout string
	// Unreadable says which attributes of the ad cannot be read; empty if none. What
	// the slot has is then not known, although some fields are set.
	Unreadable string
}

// Owner is the job's Owner: RemoteOwner without its domain.
func (s Slot) Owner() string {
	owner, _, _ := strings.Cut(s.RemoteOwner, "@")
	return owner
}

// slotAttributes say what a slot is and has. Startd, schedd and administrators write them:
// what users write is among jobWords.
var slotAttributes = append(
	slices.Clone(bindingAttributes),
	"RemoteOwner",
	"Cpus",
	"Memory",
	"GPUSlotPlan",
	"GPUSlotConfig",
	"SlotTypeID",
	"TotalSlotCpus",
	"TotalSlotMemory",
	"TotalSlotGPUs",
	"TotalSlotVRAM",
)

// commandTimeout ends a command of HTCondor whose context has no deadline; 10
// to 30 ms are usual.
const commandTimeout = 10 * time.Second

// Slots asks a startd of this machine for its slots, past the collector: an
// empty name means HTCondor's own (8 ms on 25.14.1, against 32 ms for condor_who). It
// asks for JSON: in the text of -long a job's strings have raw line breaks, behind which
// a user can write attributes of the slot. One answer has all slots whose users wrote little.
// Where that is not every slot it asks twice, for what users wrote apart: see Slot.Unsaid.
func Slots(ctx context.Context, startd string) ([]Slot, error) {
	out, err := output(ctx, Startd{Name: startd}.Environment(), "condor_status", "-direct", "", "-json",
		"-constraint", shorterTarget(mostWords, jobWords...),
		"-attributes", strings.Join(slices.Concat(slotAttributes, jobWords, []string{totalSlots}), ","))
	if slots, ok := parseAll(out); ok && err == nil {
		return slots, nil
	}
	if ctx.Err() != nil {
		return nil, cmp.Or(err, ctx.Err())
	}
	out, err = output(ctx, Startd{Name: startd}.Environment(), "condor_status", "-direct", "", "-json",
		"-attributes", strings.Join(slotAttributes, ","))
	if err != nil {
		return nil, err
	}
	slots, err := parseSlots(out)
	hear(ctx, startd, slots)
	return slots, err
}

// totalSlots is in each slot's ad: how many slots its startd has, dynamic ones too.
const totalSlots = "TotalSlots"

// parseAll reads an answer with what users wrote in it; ok says that no slot is left out.
func parseAll(text string) (slots []Slot, ok bool) {
	ads, err := classad.ParseJSON(text)
	for _, ad := range ads {
		if n, told := ad.Int(totalSlots); !told || n != int64(len(ads)) {
			return nil, false
		}
	}
	if slots, err = slotsOf(ads, err); err != nil {
		return nil, false
	}
	for i := range slots {
		slots[i].readWords(ads[i])
	}
	return slots, len(ads) > 0
}

// Restart lets the condor_master restart a startd when its jobs have ended; it
// takes no new ones meanwhile. No job is ended for it.
func Restart(ctx context.Context, startd string) error {
	_, err := output(ctx, nil, "condor_restart", "-peaceful", "-daemon", daemonName(startd))
	return err
}

// Reconfigure lets the condor_master and all its daemons read their
// configuration again, and starts daemons that are new in it.
func Reconfigure(ctx context.Context) error {
	_, err := output(ctx, nil, "condor_reconfig")
	return err
}

// bindingAttributes say what a slot is and what it has. The startd writes them, no
// user does, and none may be missing unseen: a slot without its GPU looks free.
var bindingAttributes = []string{
	"Name", "SlotType", "State", "JobId", "AssignedGPUs", "GPUs", "VRAM", "StarterPid", "GPUs_DeviceUuid",
}

// parseSlots reads "condor_status -json" of slots. A binding attribute that cannot be
// read makes its own slot unreadable; any other counts as undefined. An ad without a
// name is an error: then it is not what was asked for.
func parseSlots(text string) ([]Slot, error) {
	return slotsOf(classad.ParseJSON(text))
}

// slotsOf has a slot for each ad, in order.
func slotsOf(ads []classad.Ad, err error) (slots []Slot, _ error) {
	if err != nil {
		return nil, fmt.Errorf("slot ads: %w", err)
	}
	for _, ad := range ads {
		s := newSlot(ad)
		if s.Name == "" {
			return nil, errors.New("slot ads: an ad has no Name")
		}
		for _, name := range bindingAttributes {
			if slices.ContainsFunc(ad.Lost(), func(lost string) bool { return strings.EqualFold(name, lost) }) {
				s.Unreadable = strings.TrimPrefix(s.Unreadable+", "+name, ", ")
			}
		}
		slots = append(slots, s)
	}
	return slots, nil
}

func newSlot(ad classad.Ad) Slot {
	var s Slot
	for name, field := range map[string]*string{
		"Name": &s.Name, "SlotType": &s.Type, "State": &s.State, "JobId": &s.JobID,
		"RemoteOwner": &s.RemoteOwner, "GPUSlotPlan": &s.Plan, "GPUSlotConfig": &s.Config,
	} {
		text, _ := ad.String(name)
		*field = foreign.Word(text)
	}
	s.AssignedGPUs, _ = ad.StringList("AssignedGPUs")
	if n, ok := ad.Int("VRAM"); ok {
		s.VRAM = &n
	}
	s.GPUs, _ = ad.Int("GPUs")
	s.Cpus, _ = ad.Int("Cpus")
	s.Memory, _ = ad.Int("Memory")
	s.StarterPID, _ = ad.Int("StarterPid")
	s.DeviceUUID, _ = ad.String("GPUs_DeviceUuid")
	if _, told := ad.Int("SlotTypeID"); told && s.Type == "Partitionable" {
		var of [5]int64
		for i, name := range []string{"SlotTypeID", "TotalSlotCpus", "TotalSlotMemory", "TotalSlotGPUs", "TotalSlotVRAM"} {
			of[i], _ = ad.Int(name) // what it does not say it does not have
		}
		s.Layout = slotLayout(of[0], of[1], of[2], of[3], of[4])
	}
	return s
}

// output runs a command of HTCondor and returns what it prints.
func output(ctx context.Context, env []string, name string, args ...string) (string, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, commandTimeout)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, name, args...)
	if env != nil {
		cmd.Env = append(os.Environ(), env...)
	}
	cmd.WaitDelay = time.Second
	var out, said bounded
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	switch exit := (*exec.ExitError)(nil); {
	case out.full || said.full:
		return "", fmt.Errorf("%s prints more than %d MiB", name, maxOutput>>20)
	case err == nil:
		return out.String(), nil
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("%s is not in PATH; install HTCondor %s or later: %w", name, Oldest, err)
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s did not end in time: %w; look at: systemctl status condor", name, ctx.Err())
	case errors.As(err, &exit):
		return "", fmt.Errorf("%s: %w: %s", name, err, foreign.Clip(strings.Join(strings.Fields(said.String()), " ")))
	}
	return "", fmt.Errorf("%s: %w", name, err)
}

// maxOutput is more than any command prints of a large pool, in bytes: users choose
// what stands in the ads of jobs.
const maxOutput = 64 << 20

// bounded is the output of a command, which fails when it prints more.
type bounded struct {
	buf  bytes.Buffer
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > maxOutput {
		b.full = true
		return 0, io.ErrShortWrite
	}
	return b.buf.Write(p)
}

func (b *bounded) String() string { return b.buf.String() }

package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/user"
	"slices"
	"strconv"
	"time"

	"github.com/gpuslot/gpuslot/agent/accounts"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/cuda"
	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/mps"
)

// persona is the account that a verification's client runs as.
type persona struct {
	name string
	uid  uint32
	// change is nil where the agent has no right to run as another.
	change *cuda.Account
}

// The accounts of a verification where any account may have jobs: the package's
// own, which shares a GPU with no other process and has no jobs, or nobody's.
const (
	Account       = "gpuslot-verify"
	nobodyAccount = "nobody"
)

// as finds the account: the one whose jobs a GPU serves, else the
// package's or nobody's; an agent that is not root serves its own alone.
func (v *Verifier) as(ctx context.Context, g *plan.GPU) (persona, error) {
	if v.Own != 0 {
		return persona{name: "uid " + strconv.Itoa(int(v.Own)), uid: v.Own}, nil
	}
	name := Account
	if g.Tenancy.Policy == config.TenancyCommon {
		name = g.Tenancy.User
	}
	id, err := accountWithGroup(ctx, name)
	if unknown := user.UnknownUserError(""); name == Account && errors.As(err, &unknown) {
		name = nobodyAccount
		id, err = accountWithGroup(ctx, name)
	}
	if err != nil {
		return persona{}, fmt.Errorf("the account %s, as which it would be verified, is not known (%w): create it", name, err)
	}
	return persona{name: name, uid: id.UID, change: &id}, nil
}

// accountWithGroup looks an account up in a database that may be on the network.
func accountWithGroup(ctx context.Context, name string) (cuda.Account, error) {
	u, err := accounts.LookUp(ctx, name)
	if err != nil {
		return cuda.Account{}, err
	}
	uid, errU := strconv.ParseUint(u.Uid, 10, 32)
	gid, errG := strconv.ParseUint(u.Gid, 10, 32)
	if errU != nil || errG != nil {
		return cuda.Account{}, fmt.Errorf("its numbers read %q and %q", foreign.Clip(u.Uid), foreign.Clip(u.Gid))
	}
	return cuda.Account{UID: uint32(uid), GID: uint32(gid)}, nil
}

// attempt is what was seen of one client.
type attempt struct {
	gpu    gpu.UUID
	who    persona
	limit  gpu.MiB
	order  cuda.Order
	pid    int
	report cuda.Report
	// startErr is why there was no client.
	startErr error
	// overdue: it did not come to its end within patience.
	overdue  bool
	patience time.Duration
	// servers are those of the control daemon while the client was held, listErr
	// why they are not known.
	servers []mps.Server
	listErr error
	// stuck: it could not even be killed.
	stuck bool
	took  time.Duration
}

// attached says whether the control daemon listed the client.
func (t attempt) attached() bool {
	return slices.ContainsFunc(t.servers, func(s mps.Server) bool { return slices.Contains(s.Clients, t.pid) })
}

// orderOf is what the client does: a quarter of the limit leaves room for its
// context, which counts, and one MiB above the limit must not be had.
func orderOf(g *plan.GPU, who persona, grant *api.Grant) cuda.Order {
	env := maps.Clone(grant.Defaults)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, grant.Environment)
	o := cuda.Order{Account: who.change, Below: max(g.DefaultRequest/4, 1), Above: g.DefaultRequest + 1}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		o.Environment = append(o.Environment, k+"="+env[k])
	}
	return o
}

// try runs a client with exactly what a job would get, and holds it until
// the control daemon was asked for its clients.
func (v *Verifier) try(ctx context.Context, n *Node, g *plan.GPU, who persona, grant *api.Grant) attempt {
	begin := time.Now()
	t := attempt{
		gpu: g.UUID, who: who, limit: g.DefaultRequest, order: orderOf(g, who, grant), patience: v.Patience,
	}
	c, err := v.Start(ctx, t.order)
	if err != nil {
		t.startErr = err
		return t
	}
	t.pid = c.PID()
	late := time.NewTimer(t.patience)
	defer late.Stop()
	select {
	case <-c.Tried():
	case <-late.C:
		t.overdue = true
	case <-ctx.Done():
	}
	t.report, t.took = c.Report(), time.Since(begin)
	if ctx.Err() == nil {
		t.servers, t.listErr = v.servers(ctx, g.UUID, n.Deadline)
	}
	if t.overdue && t.attached() {
		// Only a client that is in can harm its neighbours by its end.
		v.Servers.EndClient(ctx, g.UUID, t.pid)
	}
	if t.stuck = !c.End(); t.stuck {
		v.Log.Error("a CUDA client does not end", "gpu", g.UUID, "pid", t.pid)
	}
	return t
}

// servers asks a control daemon, which may be busy for a moment.
func (v *Verifier) servers(ctx context.Context, u gpu.UUID, deadline time.Duration) (servers []mps.Server, err error) {
	for range 3 {
		limited, cancel := context.WithTimeout(ctx, deadline)
		servers, err = v.Servers.Servers(limited, u)
		cancel()
		if mps.FaultOf(err) != mps.Busy {
			break
		}
		wait(ctx, 300*time.Millisecond)
	}
	return servers, err
}

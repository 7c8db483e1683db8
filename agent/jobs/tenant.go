package jobs

import (
	"fmt"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/condor"
)

// Tenant is whose job it is, as START compares it with GPUTenant; empty if
// that is not known.
func (j Job) Tenant(key config.TenantKey) string {
	if j.Unsaid != "" && startd.TenantKey(key) != "" {
		return ""
	}
	return condor.Tenant(startd.TenantKey(key), j.Owner, j.Group, j.VO)
}

// TenantName names a job's tenant for people.
func (j Job) TenantName(key config.TenantKey) string {
	if tenant := j.Tenant(key); key != config.TenantAccount && tenant != "" {
		return tenant
	}
	return j.AccountName()
}

// SameTenant compares accounts by what the kernel says, the others by what
// HTCondor says. Nobody is the same as somebody unknown.
func SameTenant(a, b Job, key config.TenantKey) bool {
	if key == config.TenantAccount {
		return a.Account.Known && b.Account.Known && a.Account.UID == b.Account.UID
	}
	tenant := a.Tenant(key)
	return tenant != "" && tenant == b.Tenant(key)
}

// TenantOf is whose jobs hold a GPU, or why nobody can be named.
func TenantOf(running []Job, key config.TenantKey) (tenant, why string) {
	for _, j := range running {
		this := j.Tenant(key)
		switch {
		case this == "" && j.Unsaid != "":
			return "", fmt.Sprintf("%s holds it and its tenant (%s) is not known: %s", j.Starter.Slot, key, j.Unsaid)
		case this == "":
			return "", fmt.Sprintf("%s holds it and its owner is not known yet: "+
				"wait, or see whether condor_status -direct \"\" answers", j.Starter.Slot)
		case tenant != "" && this != tenant && key == config.TenantAccount:
			return "", fmt.Sprintf("jobs of %s and of %s hold it, and MPS serves one account at a time: "+
				"wait until they end", tenant, this)
		case tenant != "" && this != tenant:
			return "", fmt.Sprintf("jobs of %s and of %s hold it, and its tenant is the %s: wait until they end",
				tenant, this, key)
		}
		tenant = this
	}
	return tenant, ""
}

package condor

import (
	"fmt"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Tenant is whose job it is on a GPU where tenants are told apart by a key
// (Device.Tenant), in the words of GPUTenant: the same that START compares with.
// Empty if that is not known. A job without a group or VO is its owner's, who
// gets a name that no group has by chance.
func Tenant(key, owner, group, vo string) string {
	name := map[string]string{TenantGroup: group, TenantVO: vo}[key]
	switch {
	case key == "" || owner == "" && name == "":
		return owner
	case name != "":
		return name
	}
	return ownerPrefix + owner
}

const ownerPrefix = "owner:"

// tenantAttributes are the job's attributes of each key.
var tenantAttributes = map[string]string{TenantGroup: "AcctGroup", TenantVO: "x509UserProxyVOName"}

// oddTenant says which attribute of a job names its tenant and is not kept as it is;
// empty if none. Two such names could become the same, and none is what START compares.
func oddTenant(ad classad.Ad) string {
	for _, key := range []string{TenantGroup, TenantVO} {
		if text, _ := ad.String(tenantAttributes[key]); foreign.Word(text) != text {
			return tenantAttributes[key] + " has more than 256 bytes or characters that cannot be printed"
		}
	}
	return ""
}

// tenantMacro holds the part of START that keeps tenants apart.
func tenantMacro(key string) string {
	return map[string]string{"": "GPUSLOT_TENANT", TenantGroup: "GPUSLOT_TENANT_GROUP", TenantVO: "GPUSLOT_TENANT_VO"}[key]
}

// tenants are the parts of START that keep tenants apart, those that are used.
func (t *text) tenants(n Node) {
	used := map[string]bool{}
	for _, d := range n.shared() {
		used[d.Tenant] = true
	}
	if used[""] {
		t.comment("MPS serves one account at a time. GPUTenant is the account whose jobs hold the GPU now.")
		t.set(tenantMacro(""), "(MY.GPUTenant is undefined || MY.GPUTenant =?= TARGET.Owner)")
	}
	if used[TenantGroup] || used[TenantVO] {
		t.comment("GPUTenant names whose jobs hold the GPU now. A job without such an attribute belongs to its owner.",
			"The agent reads in the slots' ads whose jobs run.")
		t.set("STARTD_JOB_ATTRS", "$(STARTD_JOB_ATTRS) %s %s", tenantAttributes[TenantGroup], tenantAttributes[TenantVO])
	}
	for _, key := range []string{TenantGroup, TenantVO} {
		if used[key] {
			t.set(tenantMacro(key), "(MY.GPUTenant is undefined || MY.GPUTenant =?= "+
				"%s)", tenantExpression("TARGET."+tenantAttributes[key]))
		}
	}
}

// tenantExpression is Tenant in HTCondor's words. What is no string is as if it
// were not there.
func tenantExpression(attribute string) string {
	return fmt.Sprintf(
		`(isString(%[1]s) && size(%[1]s) > 0 ? %[1]s : strcat("%[2]s", TARGET.Owner))`,
		attribute,
		ownerPrefix,
	)
}

package condor

// ClosedNode is the configuration of a node whose own is not there: HTCondor offers no GPU, since an empty inventory
// stands in the place of what it would find itself. Where jobs wait for gpuslotd to close the device nodes of MIG
// devices to them, none starts: 50-gpuslot.conf sets START by closedMacro.
func ClosedNode(n Node) []byte {
	var t text
	t.comment("Written by gpuslotd on a node that it has set up; gpuslotd --release removes it. While the file that",
		"names the real inventory is missing, HTCondor offers no GPU.")
	t.set("MACHINE_RESOURCE_INVENTORY_GPUs", "%s/gpuslot-condor inventory /dev/null", n.Libexec)
	if n.supervisesAll() {
		t.comment("This node has MIG devices, whose device nodes gpuslotd closes to each job before it starts. So no job",
			"starts, also without a GPU, until gpuslotd has run since the boot: systemctl start gpuslotd.")
		t.set(closedMacro, "true")
	}
	return t.bytes()
}

// closedMacro is set where no job may start before gpuslotd has run.
const closedMacro = "GPUSLOT_CLOSED"

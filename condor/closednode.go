package condor

// ClosedNode is the configuration of a node whose own is not there: HTCondor offers no
// GPU, since an empty inventory stands in the place of what it would find itself.
func ClosedNode(libexec string) []byte {
	var t text
	t.comment("Written by gpuslotd on a node that it has set up; gpuslotd --release removes it. While the file that",
		"names the real inventory is missing, HTCondor offers no GPU.")
	t.set("MACHINE_RESOURCE_INVENTORY_GPUs", "%s/gpuslot-condor inventory /dev/null", libexec)
	return t.bytes()
}

package gpu

// ProfileID is the driver's number of a GPU instance profile, which creating
// takes and nvidia-smi mig -lgip prints. It is not the NVML_GPU_INSTANCE_PROFILE_*
// enumerator, and differs by chip: 14 is 2g on A100 and 1g on A30.
type ProfileID int

// Engines are the fixed-function engines of a profile, in NVML's fields.
type Engines struct {
	Decoders int `json:"decoders,omitempty"`
	Encoders int `json:"encoders,omitempty"`
	JPEG     int `json:"jpeg,omitempty"`
	OFA      int `json:"ofa,omitempty"`
}

// Profile is one kind of GPU instance, as the driver describes it
// (nvmlGpuInstanceProfileInfo_t and nvmlDeviceGetGpuInstancePossiblePlacements).
type Profile struct {
	ID ProfileID `json:"id"`
	// Name is as nvidia-smi prints it, without "MIG ": "1g.5gb+me".
	Name string `json:"name"`
	// Slices is the number of compute slices.
	Slices int `json:"slices"`
	// Starts are the units of the grid where an instance can begin, ascending.
	Starts []int `json:"starts"`
	// Size is the number of units that an instance takes.
	Size int `json:"size"`
	// Multiprocessors is the number of SMs; 0 means not known.
	Multiprocessors int `json:"multiprocessors,omitempty"`
	// Memory is the instance's device memory; 0 means not known.
	Memory  MiB     `json:"memory_mib,omitempty"`
	Engines Engines `json:"engines"`
	// Max is the largest number of such instances on one GPU.
	Max int `json:"max"`
}

// Chip is what the driver tells of one model of GPU. On a node it is filled
// from NVML's answers, which win; elsewhere from the published tables (mig.Model).
// Units, compute slices and engines follow from the profiles.
type Chip struct {
	// Model names the chip for people: the product, or a key of mig.Models.
	Model string `json:"model"`
	// Capability tells the generations apart: 8.0 is the one that loses SMs by
	// MIG mode alone and needs a reset to change it.
	Capability ComputeCapability `json:"compute_capability"`
	// Multiprocessors is the number of SMs with MIG mode off; 0 means not known.
	Multiprocessors int `json:"multiprocessors,omitempty"`
	// Memory is the device memory with MIG mode off; 0 means not known.
	Memory MiB `json:"memory_mib,omitempty"`
	// Profiles in any order, each id once.
	Profiles []Profile `json:"profiles"`
	// Apart are pairs of profiles that the driver refuses together although they fit.
	Apart [][2]ProfileID `json:"apart,omitempty"`
}

// Profile finds a profile by its id.
func (c Chip) Profile(id ProfileID) (Profile, bool) {
	for _, p := range c.Profiles {
		if p.ID == id {
			return p, true
		}
	}
	return Profile{}, false
}

// Units is the size of the grid that placements count in: 8 on the seven-slice
// chips, 4 on A30, 12 on RTX PRO 6000.
func (c Chip) Units() int {
	n := 0
	for _, p := range c.Profiles {
		for _, s := range p.Starts {
			n = max(n, s+p.Size)
		}
	}
	return n
}

// Slices is the number of compute slices: those of the largest profile.
func (c Chip) Slices() int {
	n := 0
	for _, p := range c.Profiles {
		n = max(n, p.Slices)
	}
	return n
}

// Engines are those of the whole GPU. NVML does not tell them; they are as many
// as the most instances that it allows of one profile have.
func (c Chip) Engines() Engines {
	var e Engines
	for _, p := range c.Profiles {
		e.Decoders = max(e.Decoders, p.Max*p.Engines.Decoders)
		e.Encoders = max(e.Encoders, p.Max*p.Engines.Encoders)
		e.JPEG = max(e.JPEG, p.Max*p.Engines.JPEG)
		e.OFA = max(e.OFA, p.Max*p.Engines.OFA)
	}
	return e
}

// Parts is what an instance of a profile has of the chip's multiprocessors and memory
// interface, 0 to 1. Where its multiprocessors are not published they count as its slices.
func (c Chip) Parts(p Profile) (sms, bandwidth float64) {
	sms = float64(p.Slices) / float64(c.Slices())
	if p.Multiprocessors > 0 && c.Multiprocessors > 0 {
		sms = float64(p.Multiprocessors) / float64(c.Multiprocessors)
	}
	return sms, float64(p.Size) / float64(c.Units())
}

// Whole is the profile that takes all compute slices, the plainest of them.
func (c Chip) Whole() (Profile, bool) {
	n := c.Slices()
	var whole Profile
	for _, p := range c.Profiles {
		if p.Slices == n && (whole.Name == "" || len(p.Name) < len(whole.Name)) {
			whole = p
		}
	}
	return whole, whole.Name != ""
}

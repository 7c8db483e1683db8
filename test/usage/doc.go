// Package usage holds agent/usage and gpu/nvml to the simulated GPU node: real
// readings through the NVML library, jobs whose load and memory are known.
package usage

// Package faults hurts a whole node and looks at what must still hold: the real
// gpuslotd with simulated GPUs and control daemons (test/sim), and up to eight
// jobs on each GPU, each below a stand-in for condor_starter that runs the real
// hook. There is no HTCondor: the test plays the startd. Start at TestCampaign;
// the injections are in injections_test.go, what must hold in holds_test.go.
//
// GPUSLOT_CAMPAIGN=1 makes 500 injections instead of one of each kind, a third with each
// driver; GPUSLOT_CAMPAIGN_SEED=n repeats a run, GPUSLOT_CAMPAIGN_ONLY=regexp
// makes injections of these names only.
package faults

package truth

import "time"

// Trials are all of the list T1 to T18, in the order in which they are made: those
// after which a GPU might serve no client come late, and the longest last. T11 wants
// a second driver library, T16 changes a setting of the device: neither is done.
func Trials() []Trial {
	return []Trial{
		{ID: "T1", Title: "what the installed control program can do", Try: tryVersion, Serverless: true},
		{ID: serverTrial, Title: "a client of a server", Try: tryServer, Claims: serverClaims, Limit: 75 * time.Second},
		{ID: "T2", Title: "memory limits by index and UUID, of daemon, server and client; read-back", Try: tryLimits, Claims: limitClaims, Limit: 2 * time.Minute},
		{ID: "B1", Title: "what NVML tells of processes without MPS", Try: tryPlain, Claims: plainClaims, Plain: true},
		{ID: "T4", Title: "malformed limits in a client's environment", Try: tryMalformed, Claims: malformedClaims, Limit: 90 * time.Second},
		{ID: "T5", Title: "what NVML tells of MPS clients", Try: trySeen, Claims: seenClaims},
		{ID: "T6", Title: "what a context costs at which percentage", Try: tryContexts, Claims: contextClaims},
		{ID: "T7", Title: "managed, asynchronous, virtual and imported memory against the limit", Try: tryKinds, Claims: kindClaims},
		{ID: "T3", Title: "clients in namespaces of their own", Try: tryNamespaces, Claims: namespaceClaims, Root: true, Limit: 90 * time.Second},
		{ID: "T12", Title: "a GPU named twice", Try: tryDevices, Claims: deviceClaims},
		{ID: "T9", Title: "what another account may do with a ready server", Try: tryPrivileges, Claims: privilegeClaims, Root: true},
		{ID: "T9b", Title: "the log's FIFO closed to other accounts", Try: tryFIFO, Claims: fifoClaims, Root: true},
		{ID: "T13", Title: "two accounts, one server at a time", Try: tryUsers, Claims: userClaims, Root: true},
		{ID: "T13b", Title: "two accounts, one server for all", Try: tryMultiUser, Claims: multiUserClaims, Root: true},
		{ID: "T14", Title: "many commands at once", Try: tryCrowdedControl, Claims: crowdedClaims, Limit: 3 * time.Minute},
		{ID: "T18", Title: "the words of the control daemon", Try: tryWords, Claims: wordClaims(), Serverless: true},
		{ID: "T11", Title: "client libraries older and newer than the server", NotDone: "there is no second driver library"},
		{ID: "T16", Title: "exclusive-process without a server", NotDone: "it changes the compute mode, which is the site's"},
		{ID: "T17", Title: "control daemon and server killed under clients", Try: tryDeath, Claims: deathClaims},
		{ID: "T10", Title: "a busy client killed, with and without terminate_client", Try: tryKill, Claims: killClaims, Limit: 90 * time.Second},
		{ID: "T8", Title: "a fault in one client", Try: tryFaults, Claims: faultClaims, Limit: 2 * time.Minute},
		{ID: "T15", Title: "how many clients there may be", Try: tryCeiling, Claims: ceilingClaims, Limit: 100 * time.Second},
	}
}

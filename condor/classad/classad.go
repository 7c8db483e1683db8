// Package classad reads and prints the part of HTCondor's ClassAd language
// that hooks, monitors and condor_status exchange: flat ads of "Name = value"
// lines (old syntax), with expressions kept as text. Start at Parse.
package classad

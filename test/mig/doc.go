// Package mig changes the layouts of a simulated node over and over, with jobs
// on its MIG devices and everything going wrong that can: calls that fail at any
// step, resets refused, and the process that changes killed at any point. After
// each change nothing that is busy or foreign was touched, the layout is the
// wanted or the former one, and the journal is empty. Start at campaign_test.go.
package mig

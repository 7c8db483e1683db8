// Package upstream runs the reproductions of docs/upstream on one test node: a report
// whose defect no longer shows fails, so that page and workaround can go.
package upstream

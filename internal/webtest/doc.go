// Package webtest has no code: its tests open the live page of a real worker in a real
// browser. They need Chromium and are skipped without it; the stage browser of .ci/run
// brings it.
package webtest

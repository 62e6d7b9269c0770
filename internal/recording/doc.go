// Package recording reads the files in which answers of real engines are
// kept: block hashes (one case a line), sessions of live servers (requests and
// the raw frames they caused) and truth traces of the engine's cache manager.
// The formats are described beside the data, in testdata/vllm.
//
// The tests, the quickstart and the conformance tool all read through it, so
// that each format is understood in one place only.
package recording

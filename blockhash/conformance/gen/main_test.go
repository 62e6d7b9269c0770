package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSelection: the committed file is what gen makes of testdata.
func TestSelection(t *testing.T) {
	want, err := selection()
	require.NoError(t, err)
	have, err := os.ReadFile("../vectors.jsonl.gz")
	require.NoError(t, err)
	require.Equal(t, unzip(t, want), unzip(t, have), "run go generate ./blockhash/conformance")
}

// unzip looks past compression, which may change with the Go release.
func unzip(t *testing.T, data []byte) string {
	z, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	text, err := io.ReadAll(z)
	require.NoError(t, err)
	return string(text)
}

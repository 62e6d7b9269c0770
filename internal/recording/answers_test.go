package recording

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadAnswer(t *testing.T) {
	a, err := ReadAnswer([]byte(`{"n":3,"op":"lookup","tokens":[1,2],"keys":["18446744073709551615","-2"],"layout_info":[["i","cpu",256]]}`))
	require.NoError(t, err)
	require.Equal(t, Answer{N: 3, Op: "lookup", Tokens: []int64{1, 2}, Keys: []ChunkKey{"18446744073709551615", "-2"},
		Layout: []AnsweredLayout{{"i", "cpu", 256}}}, a)
	bits, negative, err := a.Keys[1].Bits()
	require.NoError(t, err)
	require.True(t, negative)
	require.Equal(t, ^uint64(1), bits)
	_, _, err = ChunkKey("1.5").Bits()
	require.Error(t, err)
	a, err = ReadAnswer([]byte(`{"op":"state","keys":7,"seq_discontinuities":2}`))
	require.NoError(t, err)
	require.Equal(t, Answer{Op: "state", Chunks: 7, Gaps: 2}, a)
	for _, line := range []string{
		`{"op":"lookup"}`, `{"op":"lookup","keys":7}`, `{"op":"state","keys":["7"]}`, `{"op":"message","payload_b64":"?"}`,
		`{"op":"lookup","keys":[],"layout_info":[["i","cpu"]]}`, `{"op":"lookup","keys":[],"layout_info":[["i","cpu",1,2]]}`,
		`{"op":"lookup","keys":[],"layout_info":[["i",2,3]]}`, `[]`,
	} {
		_, err := ReadAnswer([]byte(line))
		require.Error(t, err, line)
	}
}

package record

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// Uncompressed reads what may be compressed with gzip, by its first bytes.
func Uncompressed(from io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(from, 64<<10)
	head, err := b.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return b, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		return nil, fmt.Errorf("it looks compressed, but %w", err)
	}
	return bufio.NewReader(z), nil
}

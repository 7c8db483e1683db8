package metrics

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestNoHTTP2: with TLS, too, metrics are served by HTTP/1 only.
func TestNoHTTP2(t *testing.T) {
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, errDER := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	secret, errKey := x509.MarshalECPrivateKey(key)
	write := func(name, kind string, b []byte) error {
		return os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600)
	}
	web := filepath.Join(dir, "web.yml")
	err = errors.Join(errDER, errKey, write("c.pem", "CERTIFICATE", der), write("k.pem", "EC PRIVATE KEY", secret),
		os.WriteFile(web, []byte("tls_server_config:\n  cert_file: c.pem\n  key_file: k.pem\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	address, end := serving(t, Web{Config: web})
	defer end()
	for protocol, want := range map[string]bool{"h2": false, "http/1.1": true} {
		c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
		if (err == nil) != want {
			t.Errorf("%s: %v", protocol, err)
		}
		if err == nil {
			_ = c.Close()
		}
	}
}

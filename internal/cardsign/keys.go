package cardsign

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// minRSA is the minimum length of an RSA key, in bits.
const minRSA = 2048

// Key is a private key that signs cards.
type Key struct {
	// ID identifies the key in signatures (kid). It is required and must be unique.
	ID string
	// Private is an *ecdsa.PrivateKey on P-256 (ES256), an ed25519.PrivateKey (EdDSA), or
	// an *rsa.PrivateKey of at least 2048 bits (RS256).
	Private crypto.Signer
}

// Format prints the ID for every verb, and no part of the private key.
func (k Key) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "signing key %q", k.ID) } // a Formatter cannot return an error

// MarshalText returns the ID.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.ID), nil }

// algorithm returns the signature algorithm of a key. All of them are deterministic, so
// that a card is the same on every replica.
func algorithm(key crypto.Signer) (jose.SignatureAlgorithm, error) {
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		if key.Curve != elliptic.P256() {
			return "", fmt.Errorf("is an EC key on %s; use EC P-256, Ed25519 or RSA", key.Params().Name)
		}
		return jose.ES256, nil
	case ed25519.PrivateKey:
		return jose.EdDSA, nil
	case *rsa.PrivateKey:
		if n := key.N.BitLen(); n < minRSA {
			return "", fmt.Errorf("is an RSA key of %d bits; use %d or more", n, minRSA)
		}
		return jose.RS256, nil
	}
	return "", errors.New("is of a type that cannot sign cards; use EC P-256, Ed25519 or RSA")
}

// ParsePrivate parses a private key in PEM: PKCS #8, PKCS #1 or SEC 1. The error text
// begins with a verb whose subject is the file.
func ParsePrivate(data []byte) (crypto.Signer, error) {
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return nil, errors.New("contains no private key in PEM")
		}
		data = rest
		switch block.Type {
		case "EC PARAMETERS":
			continue
		case "ENCRYPTED PRIVATE KEY":
			return nil, errors.New("is encrypted; store it unencrypted, readable only by this server")
		case "PUBLIC KEY", "RSA PUBLIC KEY", "CERTIFICATE":
			return nil, errors.New("contains a public key; cards are signed with the private key")
		}
		key, err := privateKey(block)
		if err != nil {
			return nil, err
		}
		_, err = algorithm(key)
		return key, err
	}
}

func privateKey(block *pem.Block) (crypto.Signer, error) {
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("contains a %q; a private key in PEM is required", block.Type)
	}
	if err != nil {
		return nil, errors.New("contains a private key that cannot be parsed") // the cause may quote the key
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("contains a private key that cannot sign; use EC P-256, Ed25519 or RSA")
	}
	return signer, nil
}

// ParseTrusted parses public keys: a JWK set, a JWK, or PEM with public keys and
// certificates. The error text begins with a verb whose subject is the file.
func ParseTrusted(data []byte) ([]jose.JSONWebKey, error) {
	read := pemKeys
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		read = webKeys
	}
	keys, err := read(data)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errors.New("contains no public key; provide a JWK set, a JWK, or PEM")
	}
	for _, k := range keys {
		if err := checkTrusted(k); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func webKeys(data []byte) ([]jose.JSONWebKey, error) {
	var is struct{ Keys json.RawMessage }
	if err := json.Unmarshal(data, &is); err != nil {
		return nil, errors.New("is not valid JSON")
	}
	if is.Keys == nil {
		var k jose.JSONWebKey
		if err := json.Unmarshal(data, &k); err != nil {
			return nil, errors.New("is not a valid JWK")
		}
		return []jose.JSONWebKey{k}, nil
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, errors.New("contains an invalid JWK")
	}
	var keys []jose.JSONWebKey
	for _, k := range set.Keys {
		if k.Use != "enc" {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

func pemKeys(data []byte) ([]jose.JSONWebKey, error) {
	var keys []jose.JSONWebKey
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return keys, nil
		}
		data = rest
		key, err := publicKey(block)
		if err != nil {
			return nil, err
		}
		keys = append(keys, jose.JSONWebKey{Key: key})
	}
}

func publicKey(block *pem.Block) (key any, err error) {
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var cert *x509.Certificate
		if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = cert.PublicKey
		}
	case "PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY":
		return nil, errPrivate
	default:
		return nil, fmt.Errorf("contains a %q; public keys are required", block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("contains a %q that cannot be parsed", block.Type)
	}
	return key, nil
}

var errPrivate = errors.New("contains a private key; provide only the public key")

// checkTrusted returns an error for a key that does not prove who signed a card, such as a
// shared secret or a short RSA key.
func checkTrusted(k jose.JSONWebKey) error {
	switch key := k.Key.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
	case *rsa.PublicKey:
		if n := key.N.BitLen(); n < minRSA {
			return fmt.Errorf("contains an RSA key of %d bits; at least %d are required", n, minRSA)
		}
	case []byte:
		return errors.New("contains a symmetric key, which could also be used to sign; provide a public key")
	case *ecdsa.PrivateKey, ed25519.PrivateKey, *rsa.PrivateKey:
		return errPrivate
	default:
		return errors.New("contains a key of a type that cannot sign cards; use EC, Ed25519 or RSA")
	}
	if !k.Valid() {
		return errors.New("contains an invalid key")
	}
	return nil
}

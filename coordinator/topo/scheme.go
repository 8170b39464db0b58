package topo

import (
	"bytes"
	"fmt"
	"hash/crc32"
)

// Scheme says how keys map to slots. It is fixed when a cluster is created.
type Scheme string

const (
	// CRC16 is Redis Cluster's scheme: CRC-16/XMODEM of the key or its hash
	// tag, modulo 16384. An empty tag "{}" hashes the whole key.
	CRC16 Scheme = "crc16/16384"
	// CRC32 is Codis's scheme: IEEE CRC-32 of the key or its hash tag, modulo
	// 1024. An empty tag "{}" hashes the empty string, as Codis does, so that
	// its users find their keys.
	CRC32 Scheme = "crc32/1024"

	maxSlots = 16384
)

// ParseScheme reads a scheme's name.
func ParseScheme(text string) (Scheme, error) {
	switch s := Scheme(text); s {
	case CRC16, CRC32:
		return s, nil
	}
	return "", fmt.Errorf("unknown slot scheme %q: want %s or %s", text, CRC16, CRC32)
}

// Slots is the number of slots of the scheme.
func (s Scheme) Slots() int {
	if s == CRC32 {
		return 1024
	}
	return maxSlots
}

// All is the set of every slot of the scheme.
func (s Scheme) All() SlotSet { return SlotSet{{0, Slot(s.Slots() - 1)}} }

// SlotOf gives the slot of a key. It does not allocate.
func (s Scheme) SlotOf(key []byte) Slot {
	if s == CRC32 {
		return Slot(crc32.ChecksumIEEE(s.Tag(key)) % 1024)
	}
	return Slot(crc16(s.Tag(key)) % maxSlots)
}

// Tag is the part of a key that is hashed: its hash tag or all of it.
func (s Scheme) Tag(key []byte) []byte {
	tag, tagged := hashTag(key)
	if !tagged || (len(tag) == 0 && s != CRC32) {
		return key
	}
	return tag
}

// hashTag is the part between the first '{' and the next '}' after it.
func hashTag(key []byte) (tag []byte, tagged bool) {
	open := bytes.IndexByte(key, '{')
	if open < 0 {
		return nil, false
	}
	length := bytes.IndexByte(key[open+1:], '}')
	if length < 0 {
		return nil, false
	}
	return key[open+1 : open+1+length], true
}

// crc16 is CRC-16/XMODEM: polynomial 0x1021, initial value 0, not reflected.
func crc16(data []byte) uint16 {
	var crc uint16
	for _, b := range data {
		crc = crc<<8 ^ crc16Table[byte(crc>>8)^b]
	}
	return crc
}

var crc16Table = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()

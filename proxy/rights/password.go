package rights

// Passwords are people's, so their hash must be slow to guess: argon2id with 19 MiB
// and two passes, the second of OWASP's recommended settings, some 20 ms. That is
// too slow for an event loop and for a thousand clients that reconnect at once. So:
//
//	Look    in the loop: answered at once when this proxy checked the same password
//	        against the same hash before. What it remembers is a keyed digest of
//	        the two, which says nothing without the key, and that dies with the
//	        process.
//	Verify  elsewhere: hashes, at most two at a time; of equal questions at the
//	        same time one is worked on and the others wait for it.
//
// A hash has a salt of its own, so what is remembered can not become wrong: a new
// password is a new hash. Right and wrong answers are kept apart, so that guessing
// does not displace what is right.
//
// Rejected: bcrypt (cuts passwords at 72 bytes, needs no memory and so is cheaper
// to guess); SHA-256 as in Redis (a leaked etcd backup would be as good as the
// passwords); hashing at every login (a storm of reconnects would take minutes).

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"
)

var cost = &argon2id.Params{Memory: 19 << 10, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}

const (
	passwordMin = 8   // characters
	passwordMax = 512 // bytes, for hashing and comparing

	remembered = 8192 // answers of each kind
	hashers    = 2
)

// nobody is compared with for a user that does not exist or is off, so that the
// time an answer takes does not tell. Of no password.
const nobody = "$argon2id$v=19$m=19456,t=2,p=1$c2hhcmRpcy1ub2JvZHktMQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// CheckPassword says what is wrong with a new password.
func CheckPassword(password string) error {
	if !utf8.ValidString(password) || utf8.RuneCountInString(password) < passwordMin || len(password) > passwordMax {
		return fmt.Errorf("use %d characters to %d bytes of UTF-8", passwordMin, passwordMax)
	}
	return nil
}

// Hash makes what is stored of a password. It takes 19 MiB and some 20 ms.
func Hash(password string) (string, error) {
	hash, err := argon2id.CreateHash(password, cost)
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	return hash, nil
}

// Keyring checks passwords, for all loops of a proxy.
type Keyring struct {
	secret [32]byte
	slots  chan struct{}

	mu     sync.Mutex
	known  [2]map[digest]bool // by verdict: wrong, right
	asking map[digest]chan struct{}
}

type digest [sha256.Size]byte

// Proof is what Verify found out, for the Look that follows.
type Proof struct {
	question digest
	right    bool
}

// NewKeyring makes a Keyring that remembers nothing.
func NewKeyring() *Keyring {
	k := &Keyring{slots: make(chan struct{}, hashers), asking: map[digest]chan struct{}{}}
	_, _ = rand.Read(k.secret[:]) // never fails
	k.known = [2]map[digest]bool{{}, {}}
	return k
}

// Look checks a password from memory. known is false when Verify must be called
// first; proof is what that gave, else nil.
func (k *Keyring) Look(u *User, password []byte, proof *Proof) (right, known bool) {
	switch {
	case u != nil && u.Open():
		return true, true
	case len(password) > passwordMax:
		return false, true
	case u != nil && u.Rules.Enabled && u.plain != "":
		return u.isPlain(password), true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	known = true
	for _, hash := range hashesOf(u) {
		question := k.digest(hash, password)
		switch {
		case k.known[1][question]:
			return hash != nobody, true
		case proof != nil && proof.question == question && proof.right:
			return hash != nobody, true
		case !k.known[0][question] && (proof == nil || proof.question != question):
			known = false
		}
	}
	return false, known
}

// hashesOf gives what a user's password is compared with.
func hashesOf(u *User) []string {
	if u == nil || !u.Rules.Enabled || len(u.hashes) == 0 {
		return []string{nobody}
	}
	return u.hashes
}

// Verify finds out what Look did not know, which takes its time. The proof is the
// last question's: the one that was right, if any was.
func (k *Keyring) Verify(u *User, password []byte) *Proof {
	var proof *Proof
	for _, hash := range hashesOf(u) {
		proof = k.ask(hash, password)
		if proof.right {
			break
		}
	}
	return proof
}

func (k *Keyring) ask(hash string, password []byte) *Proof {
	p := &Proof{question: k.digest(hash, password)}
	for {
		k.mu.Lock()
		if k.known[1][p.question] || k.known[0][p.question] {
			p.right = k.known[1][p.question]
			k.mu.Unlock()
			return p
		}
		other := k.asking[p.question]
		if other == nil {
			break
		}
		k.mu.Unlock()
		<-other
	}
	done := make(chan struct{})
	k.asking[p.question] = done
	k.mu.Unlock()

	k.slots <- struct{}{}
	match, err := argon2id.ComparePasswordAndHash(string(password), hash)
	<-k.slots
	p.right = match && err == nil

	k.mu.Lock()
	defer k.mu.Unlock()
	kind := k.known[verdict(p.right)]
	if len(kind) >= remembered {
		clear(kind)
	}
	kind[p.question] = true
	delete(k.asking, p.question)
	close(done)
	return p
}

func verdict(right bool) int {
	if right {
		return 1
	}
	return 0
}

func (k *Keyring) digest(hash string, password []byte) (d digest) {
	mac := hmac.New(sha256.New, k.secret[:])
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(hash)))
	mac.Write(size[:])
	mac.Write([]byte(hash))
	mac.Write(password)
	mac.Sum(d[:0])
	return d
}

// Random makes a password of n hexadecimal digits.
func Random(n int) string {
	raw := make([]byte, (n+1)/2)
	_, _ = rand.Read(raw) // never fails
	return hex.EncodeToString(raw)[:n]
}

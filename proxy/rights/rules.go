package rights

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"shardis/proxy/command"
)

const (
	maxWords = 512 // of one user's rules
	maxWord  = 512 // bytes
)

// RuleError says which word of some rules is not one, and why.
type RuleError struct {
	Position int // of the word, from 1
	Word     string
	Reason   string
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("rule %d, %q: %s", e.Position, e.Word, e.Reason)
}

// Rules are what the words of a user say.
type Rules struct {
	Enabled bool // on; the default
	NoPass  bool // any password will do

	keys        []keyRule
	channels    []string
	allKeys     bool
	allChannels bool
	commands    []commandRule // in order; later ones win
}

type keyRule struct {
	text   string
	access command.Access
}

// commandRule adds or takes commands: all of them, those of a category, or the
// one of that name with its sub-commands.
type commandRule struct {
	add      bool
	all      bool
	category bool
	name     string
}

func (r commandRule) String() string {
	sign, name := "-", r.name
	if r.add {
		sign = "+"
	}
	switch {
	case r.all:
		name = "@all"
	case r.category:
		name = "@" + name
	}
	return sign + name
}

// Split cuts rules written in one line into words.
func Split(text string) []string { return strings.Fields(text) }

// Parse reads the words of one user. It begins with what a new user has in
// Redis, nothing, but for being on.
func Parse(words []string) (*Rules, error) {
	r := &Rules{Enabled: true}
	if len(words) > maxWords {
		return nil, &RuleError{maxWords + 1, words[maxWords], fmt.Sprintf("a user has at most %d rules", maxWords)}
	}
	for i, word := range words {
		if reason := r.take(word); reason != "" {
			if len(word) > maxWord {
				word = word[:64] + "…"
			}
			return nil, &RuleError{i + 1, word, reason}
		}
	}
	return r, nil
}

// take applies one word and says what is wrong with it.
func (r *Rules) take(word string) (reason string) {
	switch {
	case word == "":
		return "is empty"
	case len(word) > maxWord || !utf8.ValidString(word) || strings.ContainsFunc(word, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return fmt.Sprintf("write at most %d bytes of UTF-8 without spaces; in a pattern ? stands for any byte", maxWord)
	}
	switch strings.ToLower(word) {
	case "on":
		r.Enabled = true
	case "off":
		r.Enabled = false
	case "nopass":
		r.NoPass = true
	case "allkeys":
		r.allKeys, r.keys = true, nil
	case "resetkeys":
		r.allKeys, r.keys = false, nil
	case "allchannels":
		r.allChannels, r.channels = true, nil
	case "resetchannels":
		r.allChannels, r.channels = false, nil
	case "allcommands":
		r.commands = []commandRule{{add: true, all: true}}
	case "nocommands":
		r.commands = nil
	case "reset":
		*r = Rules{}
	case "sanitize-payload": // as a copied ACL LIST may say; nodes do so anyway
	case "skip-sanitize-payload", "clearselectors", "resetpass":
		return "has no meaning here: leave it out"
	default:
		return r.takeSigned(word)
	}
	return ""
}

func (r *Rules) takeSigned(word string) (reason string) {
	switch word[0] {
	case '~':
		return r.takeKey(word[1:], command.AccessRead|command.AccessWrite)
	case '%':
		return r.takeAccess(word)
	case '&':
		return r.takeChannel(word[1:])
	case '+', '-':
		return r.takeCommand(word[0] == '+', strings.ToLower(word[1:]))
	case '>', '<', '#', '!':
		return "passwords are not part of the rules: give the password apart"
	case '(':
		return "selectors are not supported: make a second user"
	}
	return "is no rule: use on, off, nopass, ~key, %R~key, %W~key, &channel, +command, -command, +@category or -@category"
}

// takeAccess reads %R~pattern, %W~pattern and %RW~pattern.
func (r *Rules) takeAccess(word string) (reason string) {
	letters, text, found := strings.Cut(word[1:], "~")
	var access command.Access
	for _, c := range letters {
		switch c {
		case 'r', 'R':
			access |= command.AccessRead
		case 'w', 'W':
			access |= command.AccessWrite
		default:
			found = false
		}
	}
	if !found || access == 0 {
		return "write %R~pattern (read), %W~pattern (write) or %RW~pattern"
	}
	return r.takeKey(text, access)
}

func (r *Rules) takeKey(text string, access command.Access) (reason string) {
	full := command.AccessRead | command.AccessWrite
	switch {
	case r.allKeys && text == "*" && access == full:
	case r.allKeys:
		return "all keys are allowed already: leave ~* out, or begin anew with resetkeys"
	case text == "*" && access == full:
		r.allKeys, r.keys = true, nil
	default:
		for i := range r.keys {
			if r.keys[i].text == text {
				r.keys[i].access |= access
				return ""
			}
		}
		r.keys = append(r.keys, keyRule{text, access})
	}
	return ""
}

func (r *Rules) takeChannel(text string) (reason string) {
	switch {
	case r.allChannels && text == "*":
	case r.allChannels:
		return "all channels are allowed already: leave &* out, or begin anew with resetchannels"
	case text == "*":
		r.allChannels, r.channels = true, nil
	case !slices.Contains(r.channels, text):
		r.channels = append(r.channels, text)
	}
	return ""
}

func (r *Rules) takeCommand(add bool, name string) (reason string) {
	rule := commandRule{add: add, name: name}
	if category, is := strings.CutPrefix(name, "@"); is {
		rule.category, rule.name, rule.all = true, category, category == "all"
		switch {
		case rule.all && add:
			r.commands = []commandRule{rule}
			return ""
		case rule.all:
			r.commands = nil
			return ""
		case !slices.Contains(command.Categories(), category):
			return "is no category: ACL CAT lists them"
		}
	} else if reason := checkCommand(name); reason != "" {
		return reason
	}
	// What an earlier rule said of the same commands no longer matters.
	r.commands = slices.DeleteFunc(r.commands, func(o commandRule) bool {
		return o.category == rule.category && o.name == rule.name && !o.all
	})
	if len(r.commands) == 0 && !add {
		return "" // nothing to take away
	}
	r.commands = append(r.commands, rule)
	return ""
}

// checkCommand says why a name is none of a command. Commands of modules, which
// have a dot in their name, are taken on trust: only the nodes know them.
func checkCommand(name string) (reason string) {
	top, sub, divided := strings.Cut(name, "|")
	args := [][]byte{[]byte(top)}
	if divided {
		args = append(args, []byte(sub))
	}
	switch {
	case top == "":
		return "names no command"
	case !command.Known(args[0]):
		if strings.Contains(top, ".") {
			return ""
		}
		return "is no command"
	case !divided:
		return ""
	}
	if c := command.Lookup(args); c == nil || c.Name != name {
		return "is no sub-command of " + top
	}
	return ""
}

// Words are the rules in their shortest form; Parse reads them back to the same.
func (r *Rules) Words() []string {
	words := []string{"off"}
	if r.Enabled {
		words[0] = "on"
	}
	if r.NoPass {
		words = append(words, "nopass")
	}
	words = append(words, r.KeyWords()...)
	words = append(words, r.ChannelWords()...)
	return append(words, r.commandWords()...)
}

// KeyWords are the rules about keys.
func (r *Rules) KeyWords() []string {
	if r.allKeys {
		return []string{"~*"}
	}
	var words []string
	for _, k := range r.keys {
		mark := "~"
		switch k.access {
		case command.AccessRead:
			mark = "%R~"
		case command.AccessWrite:
			mark = "%W~"
		}
		words = append(words, mark+k.text)
	}
	return words
}

// ChannelWords are the rules about channels.
func (r *Rules) ChannelWords() []string {
	if r.allChannels {
		return []string{"&*"}
	}
	var words []string
	for _, c := range r.channels {
		words = append(words, "&"+c)
	}
	return words
}

func (r *Rules) commandWords() []string {
	var words []string
	for _, c := range r.commands {
		words = append(words, c.String())
	}
	return words
}

// CommandText are the rules about commands as ACL GETUSER shows them: beginning
// with what holds without the others.
func (r *Rules) CommandText() string {
	words := r.commandWords()
	if len(r.commands) == 0 || !r.commands[0].all {
		words = append([]string{"-@all"}, words...)
	}
	return strings.Join(words, " ")
}

// Line is the user's line in ACL LIST, without passwords.
func (r *Rules) Line(name string) string {
	words := []string{"user", name, "off"}
	if r.Enabled {
		words[2] = "on"
	}
	if r.NoPass {
		words = append(words, "nopass")
	}
	words = append(words, r.KeyWords()...)
	if !r.allChannels {
		words = append(words, "resetchannels")
	}
	words = append(words, r.ChannelWords()...)
	return strings.Join(append(words, r.CommandText()), " ")
}

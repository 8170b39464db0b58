// Package docs tests that the documents tell the truth.
package docs

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

type row struct {
	level int
	allow []string // last path elements, as the table writes them
}

// importTable reads the package table of ARCHITECTURE.md.
func importTable(t *testing.T) map[string]row {
	t.Helper()
	file, err := os.Open("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	line := regexp.MustCompile("^\\| (\\d) \\| `([a-z/]+)` \\| .* \\| ([a-z, –]+) \\|$")
	table := map[string]row{}
	for scan := bufio.NewScanner(file); scan.Scan(); {
		if m := line.FindStringSubmatch(scan.Text()); m != nil {
			level, _ := strconv.Atoi(m[1])
			table["shardis/"+m[2]] = row{level, strings.Split(m[3], ", ")}
		}
	}
	if len(table) < 20 {
		t.Fatalf("read only %d packages from the table: has its form changed?", len(table))
	}
	return table
}

// goList runs go list and gives its lines.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = ".."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestImportsFollowTheTable(t *testing.T) {
	table := importTable(t)
	const format = `{{.ImportPath}}|{{join .Imports " "}}|{{join .TestImports " "}} {{join .XTestImports " "}}|{{len .GoFiles}}`
	for _, line := range goList(t, "-f", format, "./...") {
		parts := strings.Split(line, "|")
		pkg, production, tests := parts[0], parts[1], parts[2]
		if parts[3] == "0" || isGenerator(pkg) {
			continue // tests and generators only
		}
		self, listed := table[pkg]
		if !listed {
			t.Errorf("%s is not in the table of docs/ARCHITECTURE.md", pkg)
			continue
		}
		check := func(imports string, inTest bool) {
			for imported := range strings.FieldsSeq(imports) {
				if !strings.HasPrefix(imported, "shardis/") || imported == pkg {
					continue
				}
				other, name := table[imported], imported[strings.LastIndex(imported, "/")+1:]
				if inTest && (name == "localredis" || name == "embedded") {
					continue
				}
				if !inTest && !slices.Contains(self.allow, name) {
					t.Errorf("%s imports %s: its row does not allow that", pkg, imported)
				}
				if !inTest && other.level >= self.level {
					t.Errorf("%s (level %d) imports %s (level %d): only lower levels may be imported", pkg, self.level, imported, other.level)
				}
			}
		}
		check(production, false)
		check(tests, true)
	}
}

// isGenerator reports whether pkg only makes source files.
func isGenerator(pkg string) bool { return strings.HasSuffix(pkg, "/gen") }

func TestTopLevelHoldsWhatItShould(t *testing.T) {
	allowed := map[string]bool{}
	for _, name := range strings.Fields(`cmd proxy coordinator dashboard web deploy docs go.mod go.sum README.md
		Makefile LICENSE .golangci.yml .gitignore .gitattributes .ci .git .github .githooks`) {
		allowed[name] = true
	}
	cmd := exec.Command("git", "ls-files")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	for file := range strings.FieldsSeq(string(out)) {
		top, _, _ := strings.Cut(file, "/")
		if !allowed[top] {
			t.Errorf("%s does not belong at the top level", top)
			allowed[top] = true
		}
	}
}

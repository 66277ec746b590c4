// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

const (
	maxFields  = 20
	maxMethods = 25

	// These begin the sentence of a doc comment that says why a type is larger.
	manyFields  = "It has many fields because "
	manyMethods = "It has many methods because "
)

// declared is a type of the product, as its package declares it.
type declared struct {
	at              string
	doc             string
	fields, methods int
}

// TestLargeTypesSayWhy: a type that knows everything is how a daemon of small files becomes
// one large object again. What holds several things is several types; where one flat type is
// right, its doc comment has the sentence that says why.
func TestLargeTypesSayWhy(t *testing.T) {
	types := 0
	for _, p := range packages(t) {
		if !within(p.ImportPath, "cmd", "pkg", "services") {
			continue
		}
		for name, d := range declaredTypes(t, p) {
			types++
			doc := strings.Join(strings.Fields(d.doc), " ")
			for _, size := range []struct {
				what, why string
				n, most   int
			}{{"fields", manyFields, d.fields, maxFields}, {"methods", manyMethods, d.methods, maxMethods}} {
				switch says := strings.Contains(doc, size.why); {
				case size.n > size.most && !says:
					t.Errorf("%s: %s has %d %s, at most %d: split it, or say in its doc comment: %q", d.at, name, size.n, size.what, size.most, size.why)
				case size.n <= size.most && says:
					t.Errorf("%s: %s has %d %s: its doc comment says why they are many", d.at, name, size.n, size.what)
				}
			}
		}
	}
	if types < 500 {
		t.Errorf("only %d types found", types)
	}
}

// declaredTypes are the struct types of a package with their methods.
func declaredTypes(t *testing.T, p pkg) map[string]*declared {
	t.Helper()
	types, methods, files := map[string]*declared{}, map[string]int{}, token.NewFileSet()
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(f) {
			continue
		}
		for _, decl := range f.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				methods[receiver(decl)]++
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					spec, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					if s, ok := spec.Type.(*ast.StructType); ok {
						types[spec.Name.Name] = &declared{
							at:     p.ImportPath + "/" + name,
							doc:    decl.Doc.Text() + spec.Doc.Text(),
							fields: s.Fields.NumFields(),
						}
					}
				}
			}
		}
	}
	for name, d := range types {
		d.methods = methods[name]
	}
	return types
}

// receiver is the name of the type that a function is a method of, or "".
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return ""
	}
	x := f.Recv.List[0].Type
	for {
		switch y := x.(type) {
		case *ast.StarExpr:
			x = y.X
		case *ast.IndexExpr:
			x = y.X
		case *ast.IndexListExpr:
			x = y.X
		case *ast.Ident:
			return y.Name
		default:
			return ""
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package shell

import "fmt"

// Script is a parsed script, ready to be run any number of times.
type Script struct{ body []stmt }

// stmt is one statement and the condition under which it runs.
type stmt struct {
	when string // ";" always, "&&" after success, "||" after failure
	bg   bool   // followed by "&"
	not  bool   // preceded by "!"

	words []token // a simple command
	redir string  // "", ">", ">>" or ">&2"
	file  token   // target of ">" and ">>"

	kind string // "" simple, "while", "if"
	cond []stmt
	then []stmt
	els  []stmt
}

// Parse reads a script. An error says what the shell could not understand.
func Parse(script string) (*Script, error) {
	toks, err := lex(script)
	if err != nil {
		return nil, err
	}
	p := &parser{toks: toks}
	body, err := p.list()
	if err != nil {
		return nil, err
	}
	if p.pos < len(p.toks) {
		return nil, fmt.Errorf("unexpected %q", p.word())
	}
	return &Script{body: body}, nil
}

// Command is the script that runs argv as it stands, nothing expanded.
func Command(argv ...string) *Script {
	words := make([]token, len(argv))
	for i, a := range argv {
		words[i] = token{parts: []part{{text: a}}}
	}
	return &Script{body: []stmt{{when: ";", words: words}}}
}

type parser struct {
	toks []token
	pos  int
}

// word returns the bare word at the cursor, "" when there is none.
func (p *parser) word() string {
	if p.pos >= len(p.toks) {
		return ""
	}
	w, _ := p.toks[p.pos].plain()
	return w
}

func (p *parser) accept(op string) bool {
	if p.pos < len(p.toks) && p.toks[p.pos].op == op {
		p.pos++
		return true
	}
	return false
}

func (p *parser) keyword(w string) error {
	for p.accept(";") {
	}
	if p.word() != w {
		return fmt.Errorf("expected %q, found %q", w, p.word())
	}
	p.pos++
	return nil
}

// list reads statements up to a closing keyword or the end.
func (p *parser) list() ([]stmt, error) {
	var out []stmt
	when := ";"
	for {
		for p.accept(";") {
		}
		switch p.word() {
		case "do", "done", "then", "else", "fi":
			return out, nil
		}
		if p.pos >= len(p.toks) {
			return out, nil
		}
		s, err := p.statement()
		if err != nil {
			return nil, err
		}
		s.when = when
		when = ";"
		switch {
		case p.accept("&&"):
			when = "&&"
		case p.accept("||"):
			when = "||"
		case p.accept("&"):
			s.bg = true
		}
		out = append(out, s)
	}
}

func (p *parser) statement() (stmt, error) {
	switch p.word() {
	case "!":
		p.pos++
		s, err := p.statement()
		s.not = !s.not
		return s, err
	case "while":
		p.pos++
		return p.block("while", "do", "done")
	case "if":
		p.pos++
		return p.block("if", "then", "fi")
	}
	var s stmt
	for p.pos < len(p.toks) {
		t := p.toks[p.pos]
		switch t.op {
		case "":
			s.words = append(s.words, t)
		case ">&2":
			s.redir = ">&2"
		case ">", ">>", "2>":
			p.pos++
			if p.pos >= len(p.toks) || p.toks[p.pos].op != "" {
				return s, fmt.Errorf("%s needs a file", t.op)
			}
			if t.op != "2>" { // errors are kept on stderr wherever they were sent
				s.redir, s.file = t.op, p.toks[p.pos]
			}
		default:
			if len(s.words) == 0 {
				return s, fmt.Errorf("unexpected %q", t.op)
			}
			return s, nil
		}
		p.pos++
	}
	return s, nil
}

func (p *parser) block(kind, open, end string) (stmt, error) {
	s := stmt{kind: kind}
	var err error
	if s.cond, err = p.list(); err != nil {
		return s, err
	}
	if err = p.keyword(open); err != nil {
		return s, err
	}
	if s.then, err = p.list(); err != nil {
		return s, err
	}
	if kind == "if" && p.word() == "else" {
		p.pos++
		if s.els, err = p.list(); err != nil {
			return s, err
		}
	}
	return s, p.keyword(end)
}

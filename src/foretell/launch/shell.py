"""Splits a shell script into commands and fills in its variables, without running anything.

Known: comments, continuation lines, quotes, NAME=value, NAME+=value, arrays, export, $NAME,
${NAME:-default}, ${NAME[@]}, $((arithmetic)), here-documents, redirections, ; && || | & and
newlines between commands. What only a run would tell - $(commands), variables from outside -
stays in the words as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from foretell.errors import InputError
from foretell.launch.arithmetic import NotArithmeticError, evaluate

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]\n]*\])?(\+?)=")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?!$-]")
_BRACED = re.compile(r"([A-Za-z_]\w*|\d+)(\[[@*]\])?(?:(:?[-=+?])(.*))?", re.S)
_DECLARING = ("export", "declare", "local", "readonly", "typeset")
_OPENING = ("if", "while", "until", "for", "case", "select")
_CLOSING = ("fi", "done", "esac")
_BETWEEN = ("then", "else", "elif", "do", "!", "{", "}", "time")
# Variables that hold each other can unfold without end; no real script comes near this.
_LONGEST_EXPANSION = 1_000_000
_DEEPEST = 20

Piece = tuple[str, int]
"""Some text and the line it was written on."""
Field = list[Piece]


@dataclass(frozen=True)
class Word:
    """One word of a command and the line it was written on."""

    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """The words of one simple command."""

    words: tuple[Word, ...]

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.words[0].line


@dataclass
class Script:
    """What a script comes to when it is read from top to bottom."""

    name: str
    commands: list[Command] = field(default_factory=list)
    variables: dict[str, list[Field]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """Files that here-documents write."""
    notes: list[str] = field(default_factory=list)

    def value(self, name: str) -> str | None:
        """A variable's text, or None."""
        fields = self.variables.get(name)
        return None if fields is None else " ".join(_text(f) for f in fields)


def read_script(
    text: str,
    name: str,
    variables: Mapping[str, str] | None = None,
    *,
    parent: Script | None = None,
    first_line: int = 1,
) -> Script:
    """The commands of a script; `variables` and those of a parent are known beforehand."""
    script = Script(name)
    for key, fields in ({} if parent is None else parent.variables).items():
        script.variables[key] = [list(f) for f in fields]
    for key, value in (variables or {}).items():
        script.variables[key] = [[(value, first_line)]]
    _Reader(text, script, first_line).read()
    return script


class _Reader:
    """Walks over the characters once."""

    def __init__(self, text: str, script: Script, line: int, depth: int = 0) -> None:
        self.text, self.at, self.line = text, 0, line
        self.script, self.depth = script, depth
        self.budget = _LONGEST_EXPANSION
        self.conditions = 0
        self.conditional: dict[str, str] = {}
        self.here: list[tuple[str, bool, bool, str]] = []
        self.target = ""

    def read(self) -> None:
        while self.at < len(self.text):
            words = self.command()
            if words:
                self.script.commands.append(Command(tuple(words)))

    # One command

    def command(self) -> list[Word]:
        """Words up to the next separator; assignments and redirections are taken out."""
        words: list[Word] = []
        self.target = ""
        while self.at < len(self.text):
            c = self.text[self.at]
            if c in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at, self.line = self.at + 2, self.line + 1
            elif c == "#":
                self.at = self.end_of_line()
            elif c in "\n;&|()":
                if self.text.startswith("((", self.at) and not words:
                    self.skip_double_parentheses()
                    continue
                if self.text.startswith("&>", self.at):
                    self.at += 1
                    continue
                self.at += 1
                if c == "\n":
                    self.line += 1
                    self.here_documents()
                break
            elif redirection := re.compile(r"\d*(<<-?(?!<)|<<<|>>|[<>]&|>\||<>|[<>])").match(
                self.text, self.at
            ):
                self.redirect(redirection)
            elif (not words or words[0].text in _DECLARING) and (
                assignment := _ASSIGNMENT.match(self.text, self.at)
            ):
                self.assign(assignment)
            else:
                words += self.plain_words(first=not words)
        return words

    def plain_words(self, first: bool) -> list[Word]:
        line = self.line
        found = [Word(_text(f), f[0][1] if f else line) for f in self.word()]
        if first and len(found) == 1:
            text = found[0].text
            if text in _OPENING:
                self.conditions += 1
            if text in _CLOSING:
                self.conditions = max(0, self.conditions - 1)
            if text in ("for", "select") and (loop := re.match(r"\s+(\w+)", self.rest())):
                self.script.variables.pop(loop.group(1), None)
            if text in _BETWEEN or text in _OPENING or text in _CLOSING:
                return []
        return found

    def rest(self) -> str:
        return self.text[self.at : self.at + 200]

    def assign(self, match: re.Match[str]) -> None:
        name, index, plus = match.group(1), match.group(2), match.group(3)
        line, self.at = self.line, match.end()
        if self.text.startswith("(", self.at):
            self.at += 1
            value = self.array(line)
        else:
            value = [[piece for f in self.word(split=False) for piece in f] or [("", line)]]
        if index is not None:
            return
        known = self.script.variables.get(name)
        if plus and known is not None:
            if len(known) != 1 or self.text.startswith("(", match.end()):
                known.extend(value)
            else:
                known[0].extend(value[0])
            return
        if self.conditions and known is not None and _flat(known) != _flat(value):
            shown = " ".join(_flat(value))
            self.conditional[name] = (
                f"{self.script.name}:{line} sets {name} inside a condition: {shown[:60]} was taken"
            )
        self.script.variables[name] = value

    def array(self, line: int) -> list[Field]:
        found: list[Field] = []
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == ")":
                self.at += 1
                return found
            if c == "\n":
                self.at, self.line = self.at + 1, self.line + 1
            elif self.text.startswith("\\\n", self.at):
                self.at, self.line = self.at + 2, self.line + 1
            elif c in " \t;&|(<>":
                self.at += 1
            elif c == "#":
                self.at = self.end_of_line()
            else:
                found += self.word()
        raise InputError(f"{self.script.name}:{line} opens a list that is not closed: add )")

    # Words

    def word(self, split: bool = True) -> list[Field]:
        """The fields one word comes to: usually one, none or several after expansion."""
        fields: list[Field] = [[]]
        quoted = False
        while self.at < len(self.text):
            c = self.text[self.at]
            if c in " \t\n;&|()<>":
                break
            if c == "\\":
                if self.text.startswith("\\\n", self.at):
                    self.at, self.line = self.at + 2, self.line + 1
                    continue
                fields[-1].append((self.text[self.at + 1 : self.at + 2], self.line))
                self.at += 2
            elif c == "'":
                quoted = True
                fields[-1] += self.single_quoted()
            elif c == '"':
                quoted = True
                self.double_quoted(fields)
            elif c == "`":
                fields[-1].append(self.backticks())
            elif c == "$":
                self.dollar(fields, split=split)
            else:
                end = re.compile(r"[^ \t\n;&|()<>\\'\"`$]+").match(self.text, self.at)
                assert end is not None
                fields[-1].append((end.group(), self.line))
                self.at = end.end()
        return [f for f in fields if f or quoted]

    def single_quoted(self) -> list[Piece]:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise self.unclosed("quote", "'")
        inner = self.text[self.at + 1 : end]
        self.at = end + 1
        return self.lined(inner)

    def lined(self, text: str) -> list[Piece]:
        """The text in pieces that know their lines; moves the line on."""
        pieces = []
        for part in text.splitlines(keepends=True):
            pieces.append((part, self.line))
            self.line += part.count("\n")
        return pieces

    def double_quoted(self, fields: list[Field]) -> None:
        start = self.line
        self.at += 1
        self.soft_text(fields, '"')
        if not self.text.startswith('"', self.at):
            self.line = start
            raise self.unclosed("quote", '"')
        self.at += 1

    def soft_text(self, fields: list[Field], end: str) -> None:
        """Text in which only variables, commands and backslashes are special."""
        plain = re.compile(rf"[^{end}\\$`\n]+")
        while self.at < len(self.text):
            c = self.text[self.at]
            if c == end:
                return
            if c == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                if following == "\n":
                    self.line += 1
                elif following and following in end + "\\$`":
                    fields[-1].append((following, self.line))
                else:
                    fields[-1].append(("\\" + following, self.line))
                self.at += 2
            elif c == "$":
                self.dollar(fields, split=False)
            elif c == "`":
                fields[-1].append(self.backticks())
            elif c == "\n":
                fields[-1].append(("\n", self.line))
                self.at, self.line = self.at + 1, self.line + 1
            else:
                match = plain.match(self.text, self.at)
                assert match is not None
                fields[-1].append((match.group(), self.line))
                self.at = match.end()

    def backticks(self) -> Piece:
        end = self.text.find("`", self.at + 1)
        if end < 0:
            raise self.unclosed("command", "`")
        return self.kept(end + 1)

    def kept(self, end: int) -> Piece:
        """Text up to `end` as it was written, for what only a run would tell."""
        raw, line = self.text[self.at : end], self.line
        self.line += raw.count("\n")
        self.at = end
        return " ".join(raw.split()) if "\n" in raw else raw, line

    # Expansion

    def dollar(self, fields: list[Field], *, split: bool) -> None:
        if self.text.startswith("$((", self.at):
            self.arithmetic(fields)
        elif self.text.startswith("$(", self.at):
            fields[-1].append(self.kept(self.closing(self.at + 1, "(", ")")))
        elif self.text.startswith("${", self.at):
            self.braced(fields, split=split)
        elif self.text.startswith("$'", self.at):
            self.at += 1
            fields[-1] += self.single_quoted()
        elif match := _NAME.match(self.text, self.at + 1):
            raw = self.text[self.at : match.end()]
            self.at = match.end()
            self.insert(match.group(), raw, fields, split=split, each=False)
        else:
            fields[-1].append(("$", self.line))
            self.at += 1

    def arithmetic(self, fields: list[Field]) -> None:
        end = self.closing(self.at + 1, "(", ")")
        raw = self.text[self.at : end]
        try:
            value = evaluate(raw[3:-2], self.number)
        except NotArithmeticError:
            fields[-1].append(self.kept(end))
        else:
            fields[-1].append((str(value), self.line))
            self.line += raw.count("\n")
            self.at = end

    def number(self, name: str) -> int | None:
        text = ""
        for piece, _ in (self.script.variables.get(name) or [[]])[0]:
            text += piece
            if len(text) > 40:
                return None
        return int(text) if re.fullmatch(r"\s*-?\d{1,18}\s*", text) else None

    def braced(self, fields: list[Field], *, split: bool) -> None:
        end = self.closing(self.at + 1, "{", "}")
        inner = self.text[self.at + 2 : end - 1]
        match = _BRACED.fullmatch(inner)
        if match is None:
            fields[-1].append(self.kept(end))
            return
        raw, line = self.text[self.at : end], self.line
        name, each, sign, default = match.groups()
        known = self.script.variables.get(name)
        is_set = known is not None and (
            ":" not in (sign or "") or any(text for f in known for text, _ in f)
        )
        self.at = end
        if sign and sign[-1] in "-=" and not is_set:
            value = self.nested(default, line)
            if sign[-1] == "=":
                self.script.variables[name] = [value]
            self.extend([value], fields, split=split, each=False)
        elif sign and sign[-1] == "+":
            if is_set:
                self.extend([self.nested(default, line)], fields, split=split, each=False)
        else:
            self.insert(name, raw, fields, split=split, each=each is not None)
        self.line = line + raw.count("\n")

    def nested(self, text: str, line: int) -> Field:
        """A default's own expansion."""
        if self.depth >= _DEEPEST:
            raise InputError(f"{self.script.name}:{line} nests defaults too deeply: write values")
        inner = _Reader(f'"{text}"' if '"' not in text else text, self.script, line, self.depth + 1)
        inner.budget = self.budget
        pieces = [piece for f in inner.word(split=False) for piece in f]
        self.budget = inner.budget
        return pieces or [("", line)]

    def insert(self, name: str, raw: str, fields: list[Field], *, split: bool, each: bool) -> None:
        known = self.script.variables.get(name)
        if known is None:
            fields[-1].append((raw, self.line))
            return
        if name in self.conditional and self.conditional[name] not in self.script.notes:
            self.script.notes.append(self.conditional[name])
        if len(known) > 1 and not each:
            known = known[:1]
        self.extend(known, fields, split=split, each=each)

    def extend(self, known: list[Field], fields: list[Field], *, split: bool, each: bool) -> None:
        """Append a value: as it is inside quotes, split at blanks outside them."""
        self.budget -= sum(len(text) + 1 for f in known for text, _ in f)
        if self.budget < 0:
            raise InputError(
                f"{self.script.name}:{self.line} unfolds variables without end: write values"
            )
        for number, value in enumerate(known):
            if number and each:
                fields.append([])
            if not split:
                fields[-1] += value
                continue
            for text, line in value:
                kept = text.startswith(("$(", "`"))
                for part in [text] if kept else re.findall(r"\s+|\S+", text):
                    if not part.isspace():
                        fields[-1].append((part, line))
                    elif fields[-1]:
                        fields.append([])

    def closing(self, start: int, opening: str, closing: str) -> int:
        """The position after the bracket that closes the one at `start`."""
        depth, at = 0, start
        while at < len(self.text):
            c = self.text[at]
            if c == "\\":
                at += 1
            elif c == "'" and opening == "(":
                at = self.text.find("'", at + 1)
                if at < 0:
                    break
            elif c == opening:
                depth += 1
            elif c == closing:
                depth -= 1
                if depth == 0:
                    return at + 1
            at += 1
        raise self.unclosed("bracket", "$" + opening)

    # Everything else

    def redirect(self, match: re.Match[str]) -> None:
        sign = match.group(1)
        self.at = match.end()
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        raw_start = self.at
        target = "".join(_text(f) for f in self.word(split=False))
        if sign.startswith("<<") and sign != "<<<":
            quoted = any(c in self.text[raw_start : self.at] for c in "'\"\\")
            self.here.append((target, sign == "<<-", quoted, self.target))
        elif sign in (">", ">>", ">|"):
            self.target = target
            self.here = [(e, d, q, t or target) for e, d, q, t in self.here]

    def here_documents(self) -> None:
        """Step over the bodies of here-documents; keep those that become files."""
        for end_word, indented, quoted, target in self.here:
            start = self.line
            body = []
            while True:
                if self.at >= len(self.text):
                    raise InputError(
                        f"{self.script.name}:{start} a here-document is not closed: "
                        f"add {end_word!r}"
                    )
                end = self.end_of_line()
                row = self.text[self.at : end]
                self.at, self.line = min(end + 1, len(self.text)), self.line + 1
                if (row.lstrip("\t") if indented else row) == end_word:
                    break
                body.append(row)
            if target:
                text = "\n".join(body)
                self.script.files[target] = text if quoted else self.filled(text, start)
        self.here = []

    def filled(self, text: str, line: int) -> str:
        """A here-document with its variables filled in."""
        inner = _Reader(text, self.script, line, self.depth + 1)
        inner.budget = self.budget
        fields: list[Field] = [[]]
        inner.soft_text(fields, "")
        self.budget = inner.budget
        return "".join(_text(f) for f in fields)

    def skip_double_parentheses(self) -> None:
        end = self.closing(self.at, "(", ")")
        self.line += self.text.count("\n", self.at, end)
        self.at = end

    def end_of_line(self) -> int:
        end = self.text.find("\n", self.at)
        return len(self.text) if end < 0 else end

    def unclosed(self, what: str, sign: str) -> InputError:
        return InputError(
            f"{self.script.name}:{self.line} opens a {what} with {sign} that is not closed: "
            "close it"
        )


def _text(pieces: Field) -> str:
    return "".join(text for text, _ in pieces)


def _flat(fields: list[Field]) -> list[str]:
    return [text for f in fields if (text := _text(f))]

"""Scripts are split into words as a shell would, and nothing more happens."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import InputError
from foretell.launch.shell import Script, read_script


def words(text: str, **variables: str) -> list[str]:
    """The words of the last command."""
    return [word.text for word in read_script(text, "t.sh", variables).commands[-1].words]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b  c", ["a", "b", "c"]),
        ("a 'b c' \"d e\"f g\\ h", ["a", "b c", "d ef", "g h"]),
        ("a \\\n  b # c\n", ["a", "b"]),
        ("a#b", ["a#b"]),
        ("a '' \"\"", ["a", "", ""]),
        ("N=8 M=$N\nrun $N ${M} \"${N}x$M\" '$N'", ["run", "8", "8", "8x8", "$N"]),
        ("run ${N:-8} ${N:=4} $N ${M:+x} ${N:+x}", ["run", "8", "4", "4", "x"]),
        ("N=\nrun ${N:-8} ${N-9}", ["run", "8"]),
        ("A=2\nrun ${N:-${A}} ${N:-$((A * 3))}", ["run", "2", "6"]),
        ('A="-x 1"\nA+=" -y 2"\nrun $A "$A"', ["run", "-x", "1", "-y", "2", "-x 1 -y 2"]),
        ("A=(-x 1)\nA+=( -y 'b c' )\nrun \"${A[@]}\"", ["run", "-x", "1", "-y", "b c"]),
        ("export A=1 B=2\nrun $A$B", ["run", "12"]),
        ("run $((2 * (3 + 4) / 5)) $((unknown + 1))", ["run", "2", "$((unknown + 1))"]),
        ("run $(date +%F) `date`", ["run", "$(date +%F)", "`date`"]),
        ("if [ -n x ]; then N=1; else N=2; fi\nrun $N", ["run", "2"]),
        ("run a > out.log 2>&1", ["run", "a"]),
        ("run a 2>&1 | tee log", ["tee", "log"]),
        ("cat <<EOF\nrun 'open\nEOF\nrun b", ["run", "b"]),
        ("for i in 1 2; do run $i; done", ["run", "$i"]),
        ("run $HOME/x", ["run", "$HOME/x"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_words_know_the_line_they_were_written_on() -> None:
    script = read_script('A="\n--x 1\n--y 2"\n\nrun $A \\\n --z 3\n', "t.sh")
    assert [(word.text, word.line) for word in script.commands[0].words] == [
        ("run", 5),
        ("--x", 2),
        ("1", 2),
        ("--y", 3),
        ("2", 3),
        ("--z", 6),
        ("3", 6),
    ]


def test_a_here_document_becomes_a_file() -> None:
    text = 'N=4\ncat <<EOT > ds.json\n{"train_batch_size": $N, "a": "\\$N"}\nEOT\n'
    assert read_script(text, "t.sh").files == {"ds.json": '{"train_batch_size": 4, "a": "$N"}'}


def test_a_value_set_in_a_condition_is_noted_when_used() -> None:
    script = read_script("N=1\nif x; then\n  N=4\nfi\nrun $N\n", "t.sh")
    assert script.notes == ["t.sh:3 sets N inside a condition: 4 was taken"]


@pytest.mark.parametrize("text", ['a "b', "a 'b", "a ${b", "a $(b", "a `b", "A=(b", "a <<E\nb\n"])
def test_what_is_opened_must_be_closed(text: str) -> None:
    with pytest.raises(InputError, match=r"t\.sh:\d .*not closed"):
        read_script(text, "t.sh")


def test_variables_that_unfold_without_end_are_refused() -> None:
    with pytest.raises(InputError, match="without end"):
        read_script("A=xxxxxxxx\n" + "A=$A$A$A$A\n" * 40, "t.sh")


@given(st.text(alphabet="ab=$(){}[]'\"`\\ \n;|&<>#:-+1@*", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InputError):
        assert isinstance(read_script(text, "t.sh"), Script)

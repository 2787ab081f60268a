"""README and docs cannot rot: their commands and snippets run, their links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foretell.cli import app

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
# Files the docs tell the reader to write, by the language of their block.
FILES = {"toml": "lab.toml", "json": "cases.jsonl"}


def blocks(page: Path, language: str) -> list[str]:
    return [code for found, code in BLOCK.findall(page.read_text()) if found == language]


def commands(page: Path) -> list[str]:
    lines = [line for code in blocks(page, "sh") for line in code.splitlines()]
    return [line for line in lines if line.startswith("foretell ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_and_snippets_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for language, name in FILES.items():
        for code in blocks(page, language):
            (tmp_path / name).write_text(code)
    for code in blocks(page, "python"):
        named = re.match(r"# (\w+\.py)\n", code)
        if named:
            (tmp_path / named[1]).write_text(code)
        else:
            exec(compile(code, str(page), "exec"), {"__name__": "snippet"})
    for line in commands(page):
        result = CliRunner().invoke(app, shlex.split(line)[1:])
        assert result.exit_code == 0, f"{line}\n{result.output}\n{result.exception}"


def test_the_readme_shows_the_two_commands_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"make {command}" in (ROOT / "README.md").read_text()
        assert re.search(rf"^{command}:", makefile, re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_rooms_in_the_architecture_page_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for cell in re.findall(r"^\| (`.+?) \|", text, re.M):
        folder = ""
        for path in re.findall(r"`([^`]+)`", cell):
            folder = path.rpartition("/")[0] or folder
            whole = path if "/" in path else f"{folder}/{path}"
            assert (ROOT / "src" / "foretell" / whole).exists(), whole

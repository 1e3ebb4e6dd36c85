# SPDX-License-Identifier: Apache-2.0
"""The Python of README.md and docs/*.md runs, and prints what the text says it prints.

The blocks of one file are one program. An ``output`` block is what the block before it printed.
"""

import contextlib
import io
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\[[^]]*\]\(([^)#]+)[^)]*\)")


def blocks(page: pathlib.Path) -> list[tuple[str, str, int]]:
    """Language, text and first line of each fenced block."""
    text = page.read_text(encoding="utf-8")
    return [(m[1], m[2], text.count("\n", 0, m.start()) + 2) for m in FENCE.finditer(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_runs_and_prints_what_is_shown(page: pathlib.Path) -> None:
    names: dict[str, object] = {"__name__": "page"}
    printed = ""
    for language, text, line in blocks(page):
        where = f"{page.name}:{line}"
        if language == "python":
            out = io.StringIO()
            program = compile("\n" * (line - 1) + text, page.name, "exec")
            with contextlib.redirect_stdout(out):
                exec(program, names)
            printed = out.getvalue()
        elif language == "output":
            assert printed == text, f"{where} shows another output than the block before it gives"
        else:
            printed = ""


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_block_has_a_known_language(page: pathlib.Path) -> None:
    known = {"python", "output", "sh", "text", "mlir"}
    assert {language for language, _, _ in blocks(page)} <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_design_shows_the_graph_of_the_first_program() -> None:
    shown = [text for language, text, _ in blocks(ROOT / "docs/design.md") if language == "mlir"]
    assert shown
    outputs = [text for language, text, _ in blocks(ROOT / "docs/index.md") if language == "output"]
    assert set(shown) <= set(outputs)

# SPDX-License-Identifier: Apache-2.0
"""The page on what artifacts can hold says what saving finds and says today.

The whole page saves every use of every op for every platform; the fast part looks at what is
refused, and at the numbers in the text.
"""

import re

import pytest

from tests.test_every_op import SAMPLES
from tools import exportable


@pytest.mark.slow
def test_the_page_is_as_it_would_be_written():
    assert exportable.PATH.read_text() == exportable.written(), "run python -m tools.exportable"


def test_the_page_has_each_refusal(tmp_path):
    page = exportable.PATH.read_text()
    rows = list(exportable.refusals(str(tmp_path)))
    assert len(rows) == len(exportable.REFUSED), "one of REFUSED can be saved now"
    for row in rows:
        assert f"{row}\n" in page, "run python -m tools.exportable"


def test_the_page_has_all_ops():
    page = exportable.PATH.read_text()
    (counts,) = re.findall(r"writes (\d+) of the (\d+) ops .*\n.*tried with (\d+) uses", page)
    uses = sum(map(len, SAMPLES.values()))
    assert tuple(map(int, counts)) == (len(SAMPLES), len(SAMPLES), uses)


def test_a_page_that_is_out_of_date_is_told(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text("old")
    monkeypatch.setattr(exportable, "PATH", page)
    monkeypatch.setattr(exportable, "written", lambda: "new")
    assert exportable.main(["--check"]) == 1
    assert "page.md is out of date: run python -m tools.exportable" in capsys.readouterr().err
    assert exportable.main([]) == 0
    assert page.read_text() == "new"
    assert exportable.main(["--check"]) == 0

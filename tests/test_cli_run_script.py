# SPDX-License-Identifier: Apache-2.0
"""``maxjax run SCRIPT.py`` does as ``python SCRIPT.py``: what it sees, prints and exits with.

The programs run in processes of their own; those that need nothing of ``max`` run under both.
"""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).parents[1]
MAXJAX = ["-m", "maxjax", "run"]


def python(
    *args: str | pathlib.Path, cwd: pathlib.Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )


def both(
    folder: pathlib.Path, program: str, *args: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program under both, which have to do the same; gives what they did."""
    (folder / "program.py").write_text(textwrap.dedent(program), encoding="utf-8")
    ours = python(*MAXJAX, "program.py", *args, cwd=folder, **environment)
    plain = python("program.py", *args, cwd=folder, **environment)
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout), ours.stderr
    assert ours.stderr == plain.stderr
    return ours


SEES = """
    '''What it is for.'''
    import atexit, sys
    import beside

    atexit.register(lambda: print("at exit:", __name__, beside.VALUE))
    print(sys.argv, sys.path[0], len(sys.path))
    print(__name__, __file__, __package__, __spec__, __doc__, __cached__)
    print(sys.modules["__main__"].__dict__ is globals(), type(__loader__).__name__)
    print(__builtins__, "annotations" in globals())

    class Point: ...
    import pickle
    print(type(pickle.loads(pickle.dumps(Point()))) is Point)
"""


@pytest.mark.parametrize("safe", ["", "1"])
def test_a_program_sees_what_python_shows_it(tmp_path: pathlib.Path, safe: str) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 3\n", encoding="utf-8")
    if safe:  # then Python puts no folder first: `beside` is found elsewhere
        done = both(
            tmp_path, SEES, PYTHONSAFEPATH="1", PYTHONPATH=os.pathsep.join([str(ROOT), "."])
        )
    else:
        done = both(tmp_path, SEES, "a b", "--json", "-h", "--", "--input", "x=3")
        assert "'a b', '--json', '-h', '--', '--input', 'x=3'" in done.stdout
    assert done.stdout.endswith("at exit: __main__ 3\n")


def test_the_folder_is_the_one_that_a_link_leads_to(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/beside.py").write_text("VALUE = 3\n", encoding="utf-8")
    (tmp_path / "real/target.py").write_text(textwrap.dedent(SEES), encoding="utf-8")
    (tmp_path / "link.py").symlink_to(tmp_path / "real/target.py")
    ours = python(*MAXJAX, tmp_path / "link.py", cwd=tmp_path)
    plain = python(tmp_path / "link.py", cwd=tmp_path)
    assert ours.stdout == plain.stdout
    assert f"{tmp_path}/real" in ours.stdout


@pytest.mark.parametrize(
    ("last", "code", "said"),
    [
        ("pass", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('not today')", 1, "not today\n"),
        ("raise ValueError('broken')", 1, "ValueError: broken\n"),
    ],
)
def test_exit_codes_pass_through(tmp_path: pathlib.Path, last: str, code: int, said: str) -> None:
    done = both(tmp_path, f"import sys\nprint('before')\n{last}\n")
    assert done.returncode == code
    assert done.stdout == "before\n"
    assert done.stderr.endswith(said)


@pytest.mark.parametrize(
    "program",
    [
        """
        def inner():
            return 1 / 0

        def outer():
            try:
                inner()
            except ZeroDivisionError as e:
                raise RuntimeError("outer failed") from e

        outer()
        """,
        "x = (1,\ny = 2\n",  # a syntax error
        "import json\njson.loads('{')\n",
        "import no_such_module\n",
        "raise ExceptionGroup('two', [ValueError(1), TypeError(2)])\n",
        "import click\nraise click.ClickException('not this command line')\n",
        "import sys\nsys.excepthook = lambda *a: print('mine', a[0])\n1 / 0\n",
        "import threading\nt = threading.Thread(target=lambda: print('late'))\nt.start()\n",
    ],
    ids=["chain", "syntax", "library", "import", "group", "click", "hook", "thread"],
)
def test_traces_are_the_programs_own(tmp_path: pathlib.Path, program: str) -> None:
    assert "maxjax" not in both(tmp_path, program).stderr


def test_an_interrupt_exits_with_130(tmp_path: pathlib.Path) -> None:
    (tmp_path / "p.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    done = python(*MAXJAX, "p.py", cwd=tmp_path)
    assert done.returncode == 130
    assert done.stderr.endswith("KeyboardInterrupt\n")
    assert "maxjax" not in done.stderr


def test_max_is_maxjax(tmp_path: pathlib.Path) -> None:
    program = "from max.dtype import DType\nprint(DType.float32, DType.__module__)\n"
    (tmp_path / "p.py").write_text(program, encoding="utf-8")
    done = python(*MAXJAX, "p.py", cwd=tmp_path)
    assert done.stdout == "DType.float32 maxjax.dtype\n", done.stderr


def test_a_module_that_is_missing_is_said_where_it_is_imported(tmp_path: pathlib.Path) -> None:
    program = "def load():\n    import max.grpah\n\nload()\n"
    (tmp_path / "p.py").write_text(program, encoding="utf-8")
    done = python(*MAXJAX, "p.py", cwd=tmp_path)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if "^" not in line]
    assert lines == [
        "Traceback (most recent call last):",
        f'  File "{tmp_path}/p.py", line 4, in <module>',
        "    load()",
        f'  File "{tmp_path}/p.py", line 2, in load',
        "    import max.grpah",
        "ModuleNotFoundError: no module 'max.grpah' in maxjax; the nearest it has is 'max.graph' "
        "(see docs/porting.md)",
    ]


def test_a_file_that_is_none(tmp_path: pathlib.Path) -> None:
    done = python(*MAXJAX, "none.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: cannot read none.py: No such file or directory\n"
    (tmp_path / "folder.py").mkdir()
    done = python(*MAXJAX, "folder.py", cwd=tmp_path)
    assert done.stderr == "Error: cannot read folder.py: Is a directory\n"


def test_other_files_are_artifacts(tmp_path: pathlib.Path) -> None:
    (tmp_path / "model.maxjax").write_bytes(b"PK, or so it says")
    done = python(*MAXJAX, "model.maxjax", "--input", "x=2xf32", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "program" in python(*MAXJAX, "--help", cwd=tmp_path).stdout

# SPDX-License-Identifier: Apache-2.0
"""The public surface equals the reference's, except for the lines of `data/gaps.toml`."""

import pytest

from tools import gaps

COMPARISONS = {"names": gaps.names, "signatures": gaps.signatures}


@pytest.mark.parametrize("module", gaps.MODULES)
@pytest.mark.parametrize("kind", COMPARISONS)
def test_every_difference_has_a_reason(kind: str, module: str) -> None:
    listed = gaps.load_gaps(kind, module)
    found = COMPARISONS[kind](module)
    new = [f'"{name}" = "..."  # {text}' for name, text in found.items() if name not in listed]
    if new:
        message = (
            f"maxjax.{module} differs from the reference. Make it equal, or add to "
            f'tests/data/gaps.toml, under [{kind}."{module}"], with a reason:\n'
        )
        pytest.fail(message + "\n".join(new), pytrace=False)
    assert not [name for name, reason in listed.items() if not reason], "lines without a reason"


@pytest.mark.parametrize("module", gaps.MODULES)
@pytest.mark.parametrize("kind", COMPARISONS)
def test_gaps_only_shrink(kind: str, module: str) -> None:
    filled = gaps.load_gaps(kind, module).keys() - COMPARISONS[kind](module).keys()
    assert not filled, (
        f"maxjax.{module} has these now; remove their lines from tests/data/gaps.toml, "
        f'[{kind}."{module}"]: {", ".join(sorted(filled))}'
    )


def test_no_gap_of_an_unknown_module() -> None:
    known = {kind: set(gaps.MODULES) for kind in COMPARISONS}
    for kind, modules in gaps.tomllib.loads(gaps.GAPS.read_text()).items():
        assert set(modules) <= known[kind], f"[{kind}.X] for an X that is not compared"


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("() -> None", []),
        ("(self, x: 'Callable[..., int] | None' = None)", ["self", "x=None"]),
        ("(a: dict[str, int], /, *rest: 'Any', **kw)", ["a", "/", "*rest", "**kw"]),
        ("(m: 'M' = <M.A: 'a, b'>, d: Any = cpu:0)", ["m=<M.A: 'a, b'>", "d=cpu:0"]),
        ("(name: 'str' = '', *, k: int = -1) -> 'f(x)'", ["name=''", "*", "k=-1"]),
    ],
)
def test_signature_text_is_read(text: str, parameters: list[str]) -> None:
    parsed = gaps.parse_signature(text)
    assert parsed is not None
    assert [str(p) for p in parsed] == parameters


def test_a_signature_that_says_nothing_is_not_compared() -> None:
    assert gaps.parse_signature("(*args, **kwargs)") is None
    assert gaps.parse_signature("(self, *args, **kwargs)") is None

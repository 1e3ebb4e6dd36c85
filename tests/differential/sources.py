# SPDX-License-Identifier: Apache-2.0
"""What is in the program or bound to it: constants, weights, ranges."""

from typing import Any

import numpy as np

from tests.differential.program import Program, as_text, texts
from tests.differential.registry import op
from tests.differential.values import ALL, F32, FLOATS, I64, INTS, LOOSE, Array, Size, sizes


@op("constant")
def constant(p: Program) -> None:
    dtype = p.chance(*ALL)
    dims = [Size.of(p.number(0, 3)) for _ in range(p.number(0, 3))]
    array = p.random(dtype, sizes(dims))
    lists = [f"{array.tolist()}, DType.{dtype.name}"] if array.size else []
    text = p.chance(as_text(array), *lists)
    p.emit(f"ops.constant({text}, device=CPU)", [], lambda: array, dims, dtype=dtype)


@op("constant_external")
def constant_external(p: Program) -> None:
    dtype, name = p.chance(*ALL), p.new_name("w")
    dims = [p.dim() for _ in range(p.number(0, 3))]
    array = p.weights[name] = p.random(dtype, sizes(dims))
    p.emit(f"ops.constant_external({name!r}, TensorType(DType.{dtype.name}, {texts(dims)}, CPU))",
           [], lambda: array, dims, dtype=dtype)  # fmt: skip


@op("range")
def range_(p: Program) -> None:
    dtype = p.chance(I64, F32, *INTS, *FLOATS)
    start: Any = p.number(0, 3)
    step: Any = p.number(1, 3)
    kind = p.chance("numbers", "dims", "values")
    given = f"dtype=DType.{dtype.name}, device=CPU"
    if kind == "values":
        # The size decides, and the stop does not matter.
        first = p.scalar([dtype], range(4))
        count = p.chance(Size.of(p.number(0, 5)), p.symbol())
        p.emit(f"ops.range({first.name}, 9, {step}, {count}, {given})", [first],
               lambda a: a + np.arange(count.size, dtype=first.wide) * np.array(step, first.wide),
               [count], dtype=dtype)  # fmt: skip
        return
    if kind == "dims":
        symbol = p.symbol()
        start, step = min(start, symbol.size), 1
        bounds: list[Any] = [start, symbol, 1]
        array, dims = np.arange(start, symbol.size), [symbol + -start]
    else:
        stop: Any = p.number(0, 9)
        if dtype.kind != "u" and p.flip():
            start, stop, step = stop, start - 3, -step
        bounds = [start, stop, step]
        if dtype in LOOSE and p.flip():
            bounds = [n / 2 for n in bounds]
        array = np.arange(*bounds)
        dims = [Size.of(len(array))]

    def apply() -> Array:
        return array

    p.emit(f"ops.range({', '.join(map(str, bounds))}, {given})", [], apply, dims, dtype=dtype)

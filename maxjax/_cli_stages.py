# SPDX-License-Identifier: Apache-2.0
"""What the command line says on standard error while JAX traces, lowers and compiles."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from jax import monitoring
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from maxjax._cli_text import duration

__all__ = ["STAGES", "Stages", "Times"]

STAGES = ("tracing", "lowering", "compiling")
"""What JAX does with a program before it runs."""

# JAX tells of a stage when it ends.
_EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compiling",
}
_NEXT = {"tracing": "lowering", "lowering": "compiling"}


class Times:
    """How long a step took, and JAX's stages in it.

    Attributes:
        seconds: All of it; 0 until it is over.
        stages: The seconds of each stage that there was.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.stages: dict[str, float] = {}
        self._ended: list[tuple[float, float]] = []

    def add(self, stage: str, seconds: float) -> None:
        """Counts a stage that ends now; time in stages within it is theirs.

        >>> times = Times()
        >>> times.add("tracing", 1e-9), times.add("lowering", 2.0)
        (None, None)
        >>> times.stages
        {'tracing': 1e-09, 'lowering': 1.999999999}
        """
        end = time.perf_counter()
        start, own = end - seconds, seconds
        while self._ended and self._ended[-1][0] >= start:
            own -= self._ended.pop()[1]
        self._ended.append((start, seconds))
        self.stages[stage] = self.stages.get(stage, 0.0) + max(own, 0.0)

    def rounded(self) -> dict[str, float]:
        """The stages and the whole as JSON's types, in seconds."""
        stages = {s: round(self.stages[s], 6) for s in STAGES if s in self.stages}
        return stages | {"all": round(self.seconds, 6)}

    def __str__(self) -> str:
        stages = ", ".join(f"{s} {duration(self.stages[s])}" for s in STAGES if s in self.stages)
        return duration(self.seconds) + (f" ({stages})" if stages else "")


class Stages:
    """Tells of steps: on a terminal a line that changes, and one line when each is over.

    Args:
        quiet: Whether to say nothing.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False)

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[Times]:
        """A step; what JAX does in it is told and measured.

        Args:
            what: What is being done, such as ``"Loading"``.
        """
        times, start = Times(), time.perf_counter()
        with self._live(what) as tell:

            def listen(event: str, duration_secs: float, **_: Any) -> None:
                stage = _EVENTS.get(event)
                if stage is not None:
                    times.add(stage, duration_secs)
                    tell(f"{what}: {_NEXT[stage]}" if stage in _NEXT else what)

            monitoring.register_event_duration_secs_listener(listen)
            try:
                yield times
            finally:
                monitoring.unregister_event_duration_listener(listen)
                times.seconds = time.perf_counter() - start
        self.say(f"{what}: {times}")

    @contextlib.contextmanager
    def _live(self, what: str) -> Iterator[Callable[[str], None]]:
        """A line on a terminal that says what is being done, and since when."""
        if not self.console.is_terminal or self.console.quiet:
            yield lambda text: None
            return
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        with Progress(*columns, console=self.console, transient=True) as progress:
            task = progress.add_task(what, total=None)
            yield lambda text: progress.update(task, description=text)

    def say(self, text: str) -> None:
        """One line that stays."""
        self.console.print(text, style="dim", markup=False, soft_wrap=True)

# SPDX-License-Identifier: Apache-2.0
"""Framework labels: what a compiled program was written with, and which release of it."""

from __future__ import annotations

import dataclasses
import enum
import importlib.metadata
import re
from typing import Self

__all__ = ["CompiledFrameworkLabel", "Framework"]


class Framework(enum.Enum):
    """What programs are written with."""

    kMAX = "max"
    kMaxJAX = "maxjax"
    kJAX = "jax"
    kFlax = "flax"
    kPyTorch = "pytorch"
    kTensorFlow = "tensorflow"
    kONNX = "onnx"


_PACKAGES = {Framework.kMAX: "max", Framework.kPyTorch: "torch"}
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+!_-]*")


@dataclasses.dataclass(frozen=True)
class CompiledFrameworkLabel:
    """What a compiled program was written with.

    Attributes:
        framework: The framework.
        version: Its release; empty where that is not known.

    Raises:
        TypeError: ``framework`` is no `Framework`.
        ValueError: ``version`` is not the name of a release.

    >>> label = CompiledFrameworkLabel(Framework.kJAX, "0.10.2")
    >>> str(label), CompiledFrameworkLabel.parse("jax@0.10.2") == label
    ('jax@0.10.2', True)
    """

    framework: Framework
    version: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.framework, Framework):
            raise TypeError(f"expected a Framework, got {self.framework!r}")
        if self.version and not _VERSION.fullmatch(self.version):
            raise ValueError(f"{self.version!r} is not the name of a release, such as 1.2.3")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The label of a text: a framework, and its release after an ``@``.

        Raises:
            TypeError: ``text`` is no string.
            ValueError: It is no label.

        >>> CompiledFrameworkLabel.parse("onnx").framework.name
        'kONNX'
        """
        if not isinstance(text, str):
            raise TypeError(f"the text of a label is a string, not {text!r}")
        name, at, version = text.partition("@")
        known = {f.value: f for f in Framework}
        if name not in known:
            raise ValueError(
                f"no label: {text!r}: there is no framework {name!r}; there are {', '.join(known)}"
            )
        if at and not version:
            raise ValueError(f"no label: {text!r}: there is no release after the @")
        return cls(known[name], version)

    @classmethod
    def installed(cls, framework: Framework) -> Self:
        """The label of a framework as it is installed here; without a release if it is not.

        >>> CompiledFrameworkLabel.installed(Framework.kMaxJAX).version
        '0.1.0'
        """
        try:
            version = importlib.metadata.version(_PACKAGES.get(framework, framework.value))
        except importlib.metadata.PackageNotFoundError:
            version = ""
        return cls(framework, version)

    def __str__(self) -> str:
        return f"{self.framework.value}@{self.version}" if self.version else self.framework.value

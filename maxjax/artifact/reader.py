# SPDX-License-Identifier: Apache-2.0
"""Artifacts as they are read: a function whose program is in a file."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax import export

from maxjax.artifact.archive import MAGIC, Archive
from maxjax.artifact.fit import misfit
from maxjax.artifact.manifest import Manifest, ProgramEntry
from maxjax.artifact.weights import WeightsFile
from maxjax.graph.dim import StaticDim
from maxjax.lower.signature import Signature
from maxjax.lower.spmd import Layout

__all__ = ["MANIFEST", "WEIGHTS", "Artifact", "is_artifact"]

MANIFEST = "manifest.yaml"
WEIGHTS = "weights.safetensors"
# A manifest has some hundred bytes for each weight.
_LONGEST_MANIFEST = 2**27


def is_artifact(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as an artifact does; False if there is none."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


class Artifact:
    """A program in a file, with its weights: a pure function for JAX, as a lowered graph is.

    Opening one reads its manifest and checks the table of members; programs are read, and their
    hashes compared, when they are first needed. Weights stay in the file, which is mapped into
    memory.

    Args:
        path: The file.

    Attributes:
        path: The file.
        manifest: What it is.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is no artifact, is damaged, or of a version that is not read here.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._archive = Archive(self.path)
        text = self._archive.read(MANIFEST, _LONGEST_MANIFEST)
        try:
            self.manifest = Manifest.parse(text.decode())
        except (ValueError, UnicodeDecodeError) as e:
            raise ValueError(f"{self.path}: {e}") from None
        self._signature = self.manifest.signature
        self._weights = self._weights_file()

    def _weights_file(self) -> WeightsFile | None:
        manifest = self.manifest
        hashed = {name for name, w in manifest.weights.items() if w.sha256}
        if not manifest.weights_sha256:
            if hashed or WEIGHTS in self._archive.members:
                raise self._archive.damaged("the manifest says nothing of its weights file")
            return None
        member = self._archive.members.get(WEIGHTS)
        if member is None:
            raise self._archive.damaged(f"it has no member {WEIGHTS!r}")
        file = WeightsFile(self.path, member)
        if file.header_sha256 != manifest.weights_sha256:
            raise self._archive.damaged("the header of its weights file does not have its hash")
        if file.names != hashed:
            lost = sorted(file.names ^ hashed)
            raise self._archive.damaged(
                f"its weights file and its manifest disagree about {', '.join(lost[:5])}"
            )
        return file

    # ---------------------------------------------------------------- what it is

    @property
    def name(self) -> str:
        """The name of the graph."""
        return self.manifest.name

    @property
    def signature(self) -> Signature:
        """What it takes and gives."""
        return self._signature

    @property
    def layout(self) -> Layout | None:
        """How what goes in and out is spread over several devices; None for one."""
        return self.manifest.layout

    @property
    def weight_keys(self) -> tuple[str, ...]:
        """The names of its weights."""
        return tuple(self._signature.weights)

    @property
    def sizes(self) -> Mapping[str, int]:
        """The size of each member of the file in bytes."""
        return {name: member.size for name, member in self._archive.members.items()}

    def __repr__(self) -> str:
        takes = ", ".join(t.brief() for t in self.manifest.inputs)
        gives = ", ".join(t.brief() for t in self.manifest.outputs)
        return f"Artifact({self.name!r}, ({takes}) -> ({gives}), {os.fspath(self.path)!r})"

    # ---------------------------------------------------------------- what is in it

    def weights(self, *, verify: bool = True) -> dict[str, Any]:
        """The weights in the file by name, as read-only NumPy arrays on its mapped memory.

        Args:
            verify: Whether to compare their hashes, for which each is read once.

        Raises:
            ValueError: If a weight is damaged or not of the type that the manifest says.
        """
        if self._weights is None:
            return {}
        found = {}
        for name, entry in self.manifest.weights.items():
            if entry.sha256:
                array = self._weights.read(name, entry.type, entry.sha256 if verify else "")
                shape = entry.type.shape
                if len(shape) != array.ndim or any(
                    isinstance(d, StaticDim) and d.dim != n
                    for d, n in zip(shape, array.shape, strict=True)
                ):
                    raise self._archive.damaged(
                        f"weight {name!r} has shape {list(array.shape)} in the weights file, and "
                        f"is {entry.type.brief()} in the manifest"
                    )
                found[name] = array
        return found

    def program(self, sizes: Mapping[str, int] | None = None) -> export.Exported:
        """A program, as ``jax.export`` has it.

        Args:
            sizes: Those it is specialised for; by default the one for all sizes.

        Raises:
            ValueError: If there is no such program, or it is damaged.
        """
        entry = self._entry(sizes or {})
        content = bytearray(self._member(entry.member, entry.sha256))
        try:
            program = export.deserialize(content)
        except Exception as e:  # whatever its reader meets first
            raise self._archive.damaged(
                f"member {entry.member!r} is no program that JAX {jax.__version__} reads: {e}"
            ) from None
        wrong = misfit(program, self.manifest, entry)
        if wrong:
            raise self._archive.damaged(
                f"the program in {entry.member!r} is not what the manifest says: {wrong}"
            )
        return program

    def stablehlo(self, platform: str = "all", sizes: Mapping[str, int] | None = None) -> bytes:
        """A program as portable StableHLO bytecode, for consumers other than JAX.

        Args:
            platform: Where it is to run, for programs that differ between platforms.
            sizes: Those it is specialised for; by default the program for all sizes.

        Raises:
            ValueError: If there is no such program, or it is damaged.
        """
        modules = self._entry(sizes or {}).modules
        found = modules.get("all") or modules.get(platform)
        if found is None:
            raise ValueError(
                f"{self.path} has no program for platform {platform!r}; it has them for "
                f"{', '.join(modules)}"
            )
        return self._member(*found)

    def _entry(self, sizes: Mapping[str, int]) -> ProgramEntry:
        for entry in self.manifest.programs:
            if entry.sizes == sizes:
                return entry
        there = "; ".join(str(dict(p.sizes)) for p in self.manifest.programs[1:]) or "none"
        raise ValueError(f"{self.path} has no program for the sizes {dict(sizes)}; it has: {there}")

    def _member(self, name: str, sha256: str) -> bytes:
        content = self._archive.read(name)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise self._archive.damaged(f"member {name!r} does not have its hash")
        return content

    def verify(self) -> None:
        """Reads everything in the file and compares all hashes.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If anything in it is damaged; says what.
        """
        listed = {MANIFEST, WEIGHTS}
        for entry in self.manifest.programs:
            self._member(entry.member, entry.sha256)
            listed.add(entry.member)
            for member, sha256 in entry.modules.values():
                self._member(member, sha256)
                listed.add(member)
        self.weights()
        unknown = sorted(self._archive.members.keys() - listed)
        if unknown:
            raise self._archive.damaged(f"it has members that its manifest lacks: {unknown}")

    # ---------------------------------------------------------------- calls

    @functools.cached_property
    def whole(self) -> export.Exported:
        """The program for all sizes, read once.

        Raises:
            ValueError: If it is damaged.
        """
        return self.program()

    def __call__(
        self, weights: Mapping[str, Any], inputs: Sequence[Any], buffers: Sequence[Any] = ()
    ) -> tuple[list[Any], list[Any]]:
        """The outputs, and the buffers' contents afterwards; traceable by ``jax.jit``.

        Args:
            weights: An array for each weight.
            inputs: An array for each tensor input, in order.
            buffers: An array for each buffer input, in order.
        """
        with jax.enable_x64(True):
            outputs, finals = self.whole.call(dict(weights), list(inputs), list(buffers))
        return outputs, finals

# SPDX-License-Identifier: Apache-2.0
"""Folders of artifacts, written by one run and used instead of compiling by another."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from maxjax.graph import text
from maxjax.graph.graph import Graph

__all__ = ["ArtifactBodyMismatch", "MefStore", "MissingArtifactError"]

_MANIFEST = "manifest.json"
_SUFFIX = ".maxjax"


class MissingArtifactError(RuntimeError):
    """A store has no artifact for a graph, or none of a name.

    Args:
        key: The artifact that was looked for.
        directories: Where.
        recorded: What is there instead.
        graph_name: The graph that it was for.
        signature: The types of the graph's inputs and outputs.
    """

    def __init__(
        self,
        key: str,
        directories: tuple[Path, ...],
        recorded: Iterable[str],
        *,
        graph_name: str | None = None,
        signature: dict[str, list[str]] | None = None,
    ) -> None:
        self.key = key
        self.directories = directories
        what = f"artifact {key!r}" if graph_name is None else f"graph {graph_name!r} ({signature})"
        there = ", ".join(sorted(recorded)) or "nothing"
        super().__init__(
            f"no artifact for {what} in {', '.join(map(str, directories))}, which has: {there}; "
            "the run that exports must build the same graphs as this one"
        )


class ArtifactBodyMismatch(RuntimeError):
    """The artifact of a graph was made from another graph of that name and signature.

    Args:
        graph_name: The graph.
        key: Its artifact.
        recorded: The hash of the graph that the artifact was made from.
        actual: The hash of the graph at hand.
    """

    def __init__(self, graph_name: str, key: str, recorded: str, actual: str) -> None:
        super().__init__(
            f"artifact {key!r} was made from another graph than this {graph_name!r}: "
            f"{recorded[:12]} against {actual[:12]}; does the graph depend on random numbers, "
            "devices or free memory?"
        )


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A graph whose artifact is in a store."""

    key: str
    name: str
    signature: dict[str, list[str]]
    fingerprint: str
    directory: Path


class MefStore:
    """A folder of artifacts; made by :meth:`for_export` and :meth:`for_import`.

    >>> import tempfile
    >>> from maxjax.dtype import DType
    >>> from maxjax.engine import InferenceSession, MefStore
    >>> from maxjax.graph import DeviceRef, Graph, TensorType
    >>> g = Graph("double", lambda x: x * 2, [TensorType(DType.float32, ["n"], DeviceRef.CPU())])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = InferenceSession(export_mefs=folder).load(g)
    ...     MefStore.for_import(folder).claim_import(g).name.startswith("double-")
    True
    """

    def __init__(
        self,
        directories: tuple[Path, ...],
        exporting: bool,
        key: Callable[[Graph], str | None],
        verify_body: bool,
    ) -> None:
        self.directories = directories
        self.exporting = exporting
        self._key = key
        self._verify = verify_body
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._artifacts: dict[str, Path] = {}

    @classmethod
    def for_export(
        cls, directory: str | Path, *, key: Callable[[Graph], str] | None = None
    ) -> MefStore:
        """A store that sessions write artifacts to.

        Args:
            directory: The folder; it is made if there is none.
            key: Gives the file name of a graph's artifact, where its name and types do not tell it
                from all others.

        Raises:
            OSError: If the folder cannot be made.
        """
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        return cls((path,), True, key or _default_key, False)

    @classmethod
    def for_import(
        cls,
        directories: str | Path | Iterable[str | Path],
        *,
        key: Callable[[Graph], str | None] | None = None,
        verify_body: bool = False,
    ) -> MefStore:
        """A store that sessions take artifacts from.

        Args:
            directories: A folder that another store wrote, or several.
            key: As that store's; None for a graph leaves it to be compiled.
            verify_body: Whether a graph must be the very one that its artifact was made from.

        Raises:
            ValueError: If there is no folder, or a list of artifacts is damaged.
            FileNotFoundError: If a folder has no list of artifacts.
            RuntimeError: If two folders have different graphs under one name.
        """
        given = [directories] if isinstance(directories, str | Path) else list(directories)
        if not given:
            raise ValueError("a store to import from needs at least one folder")
        store = cls(tuple(map(Path, given)), False, key or _default_key, verify_body)
        for directory in store.directories:
            store._read_manifest(directory)
        return store

    def claim_export(self, graph: Graph) -> Path:
        """Where to write the artifact of a graph, which is recorded.

        Raises:
            ValueError: If the store imports, or its key names nothing for this graph.
            RuntimeError: If another graph has the same key.
        """
        self._must_export()
        key = self._key(graph)
        if key is None:
            raise ValueError(f"the store's key names no artifact for graph {graph.name!r}")
        directory = self.directories[0]
        new = _Entry(key, graph.name, _signature(graph), _fingerprint(graph), directory)
        with self._lock:
            known = self._entries.setdefault(_plain(key), new)
            if known.fingerprint != new.fingerprint:
                raise RuntimeError(
                    f"two different graphs have the artifact {key!r}, {known.name!r} and "
                    f"{new.name!r}; give the store a key that tells them apart"
                )
        return directory / key

    def claim_export_artifact(self, name: str) -> Path:
        """Where to write an artifact that is not one graph's, by its file name, which is recorded.

        Raises:
            ValueError: If the store imports, or the name is a graph's artifact or no file name.
        """
        self._must_export()
        with self._lock:
            if name in self._entries:
                raise ValueError(f"{name!r} is the artifact of graph {self._entries[name].name!r}")
            return self._artifacts.setdefault(_plain(name), self.directories[0] / name)

    def claim_import(self, graph: Graph) -> Path | None:
        """The artifact of a graph; None if the store's key leaves it to be compiled.

        Raises:
            MissingArtifactError: If there is none.
            ArtifactBodyMismatch: If it was made from another graph, where that is verified.
        """
        key = self._key(graph)
        if key is None:
            return None
        entry = self._entries.get(key)
        if entry is None:
            names = [e.name for e in self._entries.values()]
            raise MissingArtifactError(
                key, self.directories, names, graph_name=graph.name, signature=_signature(graph)
            )
        if self._verify:
            actual = _fingerprint(graph)
            if actual != entry.fingerprint:
                raise ArtifactBodyMismatch(graph.name, key, entry.fingerprint, actual)
        return entry.directory / key

    def artifact(self, name: str) -> Path:
        """The artifact of that name that is not one graph's.

        Raises:
            MissingArtifactError: If there is none.
        """
        if name not in self._artifacts:
            raise MissingArtifactError(name, self.directories, self._artifacts)
        return self._artifacts[name]

    def write_manifest(self) -> None:
        """Writes the list of what was exported so far, beside and renamed.

        Raises:
            ValueError: If the store imports.
            OSError: If it cannot be written.
        """
        self._must_export()
        with self._lock:
            document = {
                "graphs": [
                    {"key": e.key, "name": e.name, "signature": e.signature}
                    | {"fingerprint": e.fingerprint}
                    for e in self._entries.values()
                ],
                "artifacts": sorted(self._artifacts),
            }
            path = self.directories[0] / _MANIFEST
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(document, file, indent=2)
            os.replace(name, path)

    def _must_export(self) -> None:
        if not self.exporting:
            raise ValueError("the store imports; one to write to is MefStore.for_export(folder)")

    def _read_manifest(self, directory: Path) -> None:
        path = directory / _MANIFEST
        if not path.is_file():
            raise FileNotFoundError(f"{directory} has no {_MANIFEST}: no store was written there")
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            entries = [
                _Entry(
                    _plain(g["key"]),
                    str(g["name"]),
                    dict(g["signature"]),
                    str(g["fingerprint"]),
                    directory,
                )
                for g in document["graphs"]
            ]
            artifacts = {_plain(name): directory / name for name in document["artifacts"]}
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            raise ValueError(f"{path} is damaged: {e!r}") from None
        for entry in entries:
            known = self._entries.setdefault(entry.key, entry)
            if known.fingerprint != entry.fingerprint:
                raise RuntimeError(
                    f"{known.directory} and {directory} have different graphs under {entry.key!r}"
                )
        self._artifacts |= artifacts


def _plain(name: Any) -> str:
    """A file name without a folder in it.

    Raises:
        ValueError: If it is none.
    """
    if not isinstance(name, str) or name in ("", ".", "..") or re.search(r"[/\\\0]", name):
        raise ValueError(f"the name of an artifact is a plain file name, not {name!r:.80}")
    return name


def _signature(graph: Graph) -> dict[str, list[str]]:
    return {
        "inputs": [str(t) for t in graph.input_types],
        "outputs": [str(t) for t in graph.output_types],
    }


def _default_key(graph: Graph) -> str:
    digest = hashlib.sha256(json.dumps(_signature(graph)).encode()).hexdigest()[:12]
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', graph.name) or 'graph'}-{digest}{_SUFFIX}"


def _fingerprint(graph: Graph) -> str:
    return hashlib.sha256(text.dump(graph).encode()).hexdigest()

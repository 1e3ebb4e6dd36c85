# SPDX-License-Identifier: Apache-2.0
"""A process that damages an artifact at random and reads what is left, with little memory.

Run as ``python -m tests.export.mutate FILE FOLDER FROM TO``: trials are numbered, and each is made
from its number alone. Prints a line of JSON for what went wrong, and at the end one with counts.
"""

from __future__ import annotations

import collections
import json
import random
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from maxjax.artifact import Artifact
from tests.export.tampering import members

__all__ = ["contents", "mutated"]

MEMORY = 192 * 2**20  # bytes beyond what the process has when it starts
SECONDS = 20


def mutated(original: bytes, places: list[int], number: int) -> tuple[str, bytes]:
    """What is done in a trial, and the file after it."""
    chance = random.Random(number)
    if chance.random() < 0.2:
        length = chance.randrange(len(original))
        return f"cut to {length} bytes", original[:length]
    # Every second time where the file says how it is to be read.
    at = chance.choice(places) if chance.random() < 0.5 else chance.randrange(len(original))
    content = bytearray(original)
    content[at] ^= chance.randrange(1, 256)
    return f"byte {at} from {original[at]} to {content[at]}", bytes(content)


def contents(path: Path) -> dict[str, Any]:
    """Everything in an artifact, each part checked as it is read."""
    artifact = Artifact(path)
    artifact.verify()
    manifest = artifact.manifest
    found: dict[str, Any] = {"manifest": manifest.dump()}
    for entry in manifest.programs:
        found[entry.member] = artifact.program(entry.sizes).mlir_module_serialized
        for platform in manifest.platforms:
            key = f"{entry.member} {platform}"
            found[key] = artifact.stablehlo(platform, entry.sizes)
    for name, array in artifact.weights().items():
        found[f"weight {name}"] = str(array.dtype), array.shape, array.tobytes()
    return found


def structure(path: Path) -> list[int]:
    """The bytes that are neither programs nor weights."""
    original = path.read_bytes()
    inside: set[int] = set()
    for name, content in members(path).items():
        start = original.index(content)
        if name == "weights.safetensors":
            inside |= set(range(start + 8 + int.from_bytes(content[:8], "little"), len(content)))
        elif name != "manifest.yaml":
            inside |= set(range(start, start + len(content)))
    return [i for i in range(len(original)) if i not in inside]


def main() -> None:
    source, folder, first, last = sys.argv[1:]
    path, places = Path(folder) / "mutated.maxjax", structure(Path(source))
    original, whole = Path(source).read_bytes(), contents(Path(source))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    counts: collections.Counter[str] = collections.Counter()
    for number in range(int(first), int(last)):
        what, content = mutated(original, places, number)
        path.write_bytes(content)
        signal.alarm(SECONDS)  # ends the process
        try:
            result = "the same" if contents(path) == whole else "another"
        except (ValueError, OSError) as e:
            result = type(e).__name__ if str(e) else "no message"
        except BaseException as e:
            result = f"{type(e).__name__}: {e}"
        signal.alarm(0)
        counts[result] += 1
        if result not in ("the same", "ValueError", "OSError"):
            print(json.dumps({"trial": number, "what": what, "result": result}), flush=True)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()

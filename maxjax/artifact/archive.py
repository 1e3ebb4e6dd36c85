# SPDX-License-Identifier: Apache-2.0
"""The file of an artifact: a zip archive whose members lie in it as they are, each aligned.

Nothing is compressed, so that weights can be mapped into memory, and everything that could differ
between two machines (times, owners, the order of members) is fixed, so that equal artifacts are
equal files. Any tool that reads zip archives reads these.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

__all__ = ["MAGIC", "Archive", "Member", "write"]

MAGIC = b"PK\x03\x04"
"""What the files begin with."""

_ALIGNMENT = 64
# The extra field that other tools use for the same purpose: zipalign's.
_PADDING = 0xD935
_LOCAL = struct.Struct("<4s5H3L2H")
_NAME = re.compile(r"[A-Za-z0-9_.=,-]+(/[A-Za-z0-9_.=,-]+)*")
_MOST_MEMBERS = 10_000


@dataclass(frozen=True, slots=True)
class Member:
    """A part of the file.

    Attributes:
        name: Its path in the archive.
        start: Where its content begins in the file, in bytes.
        size: How many bytes it has.
        crc: Its CRC-32.
    """

    name: str
    start: int
    size: int
    crc: int


def write(path: Path, members: Mapping[str, tuple[int, Iterable[Any]]]) -> None:
    """Writes a file beside ``path``, and puts it in its place once it is whole.

    Args:
        path: Where the file is to be.
        members: For each name, in order, the number of bytes and these in pieces.

    Raises:
        OSError: If it cannot be written; what was at ``path`` is still there then.
    """
    with _replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, (size, pieces) in members.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system = 3
            info.external_attr = 0o644 << 16
            info.file_size = size
            is_large = size > 2**31
            info.extra = _padding(file.tell(), name, is_large)
            with archive.open(info, "w", force_zip64=is_large) as member:
                for piece in pieces:
                    member.write(piece)


def _padding(position: int, name: str, is_large: bool) -> bytes:
    """An extra field after which the content of a member begins at a multiple of 64 bytes."""
    before = position + _LOCAL.size + len(name.encode()) + 4 + (20 if is_large else 0)
    return struct.pack("<2H", _PADDING, -before % _ALIGNMENT) + bytes(-before % _ALIGNMENT)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of ``path`` when all went well."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with open(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


class Archive:
    """A file that :func:`write` wrote, its table of members read and checked.

    Args:
        path: The file.

    Attributes:
        members: What is in it, by name.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is no such file, or damaged; says what is wrong.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            if file.read(4) != MAGIC:
                raise ValueError(f"{path} is no artifact: it does not begin as a zip archive does")
            try:
                with zipfile.ZipFile(file) as archive:
                    infos = archive.infolist()
            except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as e:
                raise self.damaged(f"{e}; if it was cut off, copy it again") from None
            except OSError as e:
                if e.errno != errno.EINVAL:
                    raise
                raise self.damaged("its table of members begins before the file") from None
            if len(infos) > _MOST_MEMBERS:
                raise self.damaged(f"it lists {len(infos)} members")
            self.members: dict[str, Member] = {}
            for info in infos:
                member = self._member(file, info, size)
                if member.name in self.members:
                    raise self.damaged(f"member {member.name!r} is there twice")
                self.members[member.name] = member
        end = 0
        for member in sorted(self.members.values(), key=lambda m: m.start):
            if member.start < end:
                raise self.damaged(f"member {member.name!r} overlaps the one before it")
            end = member.start + member.size

    def damaged(self, what: str) -> ValueError:
        """The error for a file that is not as it must be."""
        return ValueError(f"{self.path} is damaged: {what}")

    def _member(self, file: IO[bytes], info: zipfile.ZipInfo, size: int) -> Member:
        """One member, as the table at the end and the head before its content agree on it."""
        name = info.filename
        if not _NAME.fullmatch(name) or {"..", "."} & set(name.split("/")):
            raise self.damaged(f"member {name!r:.80} has a name that is no plain path inside it")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 0x1:
            raise self.damaged(f"member {name!r} is compressed or encrypted")
        if info.compress_size != info.file_size:
            raise self.damaged(f"member {name!r} has two sizes")
        file.seek(info.header_offset)
        head = file.read(_LOCAL.size)
        if len(head) < _LOCAL.size:
            raise self.damaged(f"member {name!r} begins beyond the end of the file")
        magic, _, flags, method, _, _, crc, _, _, name_size, extra_size = _LOCAL.unpack(head)
        if magic != MAGIC or flags & 0x1 or method or crc != info.CRC:
            raise self.damaged(f"what is before member {name!r} is not what the table says")
        if file.read(name_size) != name.encode():
            raise self.damaged(f"member {name!r} has another name where it begins")
        start = info.header_offset + _LOCAL.size + name_size + extra_size
        if start + info.file_size > size:
            raise self.damaged(f"member {name!r} ends beyond the end of the file")
        return Member(name, start, info.file_size, info.CRC)

    def read(self, name: str, limit: int = 2**31) -> bytes:
        """The content of a member, its checksum compared.

        Args:
            name: Its name.
            limit: The most bytes it may have.

        Raises:
            ValueError: If there is no such member, it is too large, or its checksum is another.
            OSError: If the file cannot be read.
        """
        member = self.members.get(name)
        if member is None:
            raise self.damaged(f"it has no member {name!r}")
        if member.size > limit:
            raise self.damaged(f"member {name!r} has {member.size} bytes, more than {limit}")
        with self.path.open("rb") as file:
            file.seek(member.start)
            content = file.read(member.size)
        if len(content) != member.size or zlib.crc32(content) != member.crc:
            raise self.damaged(f"the content of member {name!r} does not have its checksum")
        return content

# SPDX-License-Identifier: Apache-2.0
"""Reading the text of shapes: ``1x?x3``, and what is said where it is none."""

from __future__ import annotations

from maxjax.support.ml.layout import MAX_DIM, MAX_RANK

__all__ = ["bad_piece", "print_dims", "read_dims"]


def bad_piece(what: str, text: str, piece: str, start: int, expected: str) -> ValueError:
    """The error of a text in which one piece is wrong.

    Args:
        what: What the text was to be: "shape".
        text: The whole.
        piece: The part that is wrong.
        start: Where it begins in ``text``, in characters.
        expected: What should be there.

    >>> bad_piece("shape", "1x2y", "2y", 2, "a dim is a number or ?")
    ValueError("no shape: '1x2y': the piece '2y' (bytes 32 79) at byte 2: a dim is a number or ?")
    """
    coded = piece.encode("utf-8", "surrogatepass")
    shown = f"bytes {coded[:16].hex(' ')}{' ...' if len(coded) > 16 else ''}" if coded else "empty"
    at = len(text[:start].encode("utf-8", "surrogatepass"))
    return ValueError(
        f"no {what}: {_short(text)}: the piece {_short(piece)} ({shown}) at byte {at}: {expected}"
    )


def _short(text: str) -> str:
    """A text for an error, without the middle where it is long."""
    return repr(text if len(text) <= 80 else f"{text[:38]}...{text[-38:]}")


def read_dims(what: str, text: str, shape: str, start: int = 0) -> list[int] | None:
    """The sizes that a text says.

    Args:
        what: What the whole text is, for errors.
        text: The whole text, for errors.
        shape: The part of it that is the shape.
        start: Where that begins.

    Returns:
        Sizes, -1 where dynamic; None where the rank is.

    Raises:
        ValueError: A piece is neither a number nor ``?``, or there are more than 8.
    """
    if shape == "*":
        return None
    if not shape:
        return []
    dims: list[int] = []
    for piece in shape.split("x"):
        if len(dims) == MAX_RANK:
            raise bad_piece(
                what, text, piece, start, f"dim {MAX_RANK} is too many, a rank is at most 8"
            )
        dims.append(_read_dim(what, text, piece, start))
        start += len(piece) + 1
    return dims


def _read_dim(what: str, text: str, piece: str, start: int) -> int:
    if piece == "?":
        return -1
    if not (piece.isascii() and piece.isdigit()):
        hint = "a dim is a number or ?"
        if not piece:
            hint = f"there is no dim where one is expected; {hint}"
        elif piece[0] == "-":
            hint = "a dim is not negative; a dynamic one is written ?"
        elif piece == "*":
            hint = "* is a dynamic rank, with no dims beside it; a dynamic dim is written ?"
        raise bad_piece(what, text, piece, start, hint)
    digits = piece.lstrip("0")
    # Length first: Python refuses to read numbers of thousands of digits, in words of its own.
    if len(digits) > 19 or int(digits or "0") > MAX_DIM:
        raise bad_piece(what, text, piece, start, f"a dim is at most {MAX_DIM}")
    return int(digits or "0")


def print_dims(dims: tuple[int, ...] | None) -> str:
    """The text of sizes; the inverse of `read_dims`.

    >>> print_dims((1, -1, 3)), print_dims(None), print_dims(())
    ('1x?x3', '*', '')
    """
    if dims is None:
        return "*"
    return "x".join("?" if d < 0 else str(d) for d in dims)

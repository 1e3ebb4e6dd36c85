# SPDX-License-Identifier: Apache-2.0
"""``python -m maxjax`` is the command ``maxjax``."""

from maxjax.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main(prog_name="maxjax")

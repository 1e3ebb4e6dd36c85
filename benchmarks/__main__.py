# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks: `python -m benchmarks` all of them, `python -m benchmarks NAME ...` some."""

import importlib
import pkgutil
import sys

import benchmarks


def main(names: list[str]) -> None:
    """Runs the named benchmarks, or all of them, each under a line with its name."""
    known = sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name[0] != "_")
    unknown = set(names) - set(known)
    if unknown:
        sys.exit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for name in names or known:
        print(f"== {name}", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])

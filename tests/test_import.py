# SPDX-License-Identifier: Apache-2.0
"""Importing maxjax changes nothing in the user's process.

Each check runs in a process of its own: this one has a JAX of the tests' making.
How long the import takes is measured by `benchmarks/import_time.py`.
"""

import json
import os
import pkgutil
import subprocess
import sys

import maxjax

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(maxjax.__path__, "maxjax.")
    if not module.name.endswith("__main__")
)

PROGRAM = """
import importlib, json, logging, os, signal, sys, threading, warnings
import jax

def state():
    return {
        **{f"environment: {k}": v for k, v in os.environ.items()},
        **{f"jax.config: {k}": repr(v) for k, v in jax.config.values.items()},
        "warnings.filters": [repr(f) for f in warnings.filters],
        "logging": [repr(h) for h in logging.getLogger().handlers],
        "threads": threading.active_count(),
        "sys.excepthook": repr(sys.excepthook),
        "SIGINT": repr(signal.getsignal(signal.SIGINT)),
        "directory": os.getcwd(),
    }

before = state()
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
after = state()
changed = {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)}
print(json.dumps({k: [before.get(k), after.get(k)] for k in changed}))
"""

# JAX refuses to change its number of CPU devices once a backend has started.
STARTS_NO_BACKEND = """
import importlib, json, sys
import jax

for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
jax.config.update("jax_num_cpu_devices", 3)
print(len(jax.devices("cpu")))
"""


def run(program: str) -> str:
    """What ``program`` prints, run in a new process with the names of all of maxjax's modules."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, json.dumps(MODULES)],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_modules_to_import() -> None:
    assert {"maxjax.dtype", "maxjax.graph", "maxjax.engine"} <= set(MODULES)


def test_import_changes_nothing_in_the_process() -> None:
    assert json.loads(run(PROGRAM)) == {}


def test_import_starts_no_backend() -> None:
    assert run(STARTS_NO_BACKEND).strip() == "3"

# SPDX-License-Identifier: Apache-2.0
"""The facts are programs that `test_facts.py` loads, not tests to collect."""

collect_ignore = ["expected", "facts", "harness.py"]

# SPDX-License-Identifier: Apache-2.0
"""A decoder in the style of Qwen 3, of random weights: with ``nn`` and with Flax."""

# SPDX-License-Identifier: Apache-2.0
"""A language model (Gemma 3 270M) as a MAX program, from its GGUF file to text."""

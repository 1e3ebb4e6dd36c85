# SPDX-License-Identifier: Apache-2.0
"""Custom kernels of the three kinds: a JAX function, a Pallas kernel, an XLA FFI handler in C++."""

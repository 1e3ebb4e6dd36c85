# SPDX-License-Identifier: Apache-2.0
"""A decoder on a grid of devices: replicas for parts of the batch, each shared out to several."""

# SPDX-License-Identifier: Apache-2.0
"""The format of artifacts: files with a program, its weights, and a manifest that describes both.

:mod:`maxjax.export` is what users call.
"""

from maxjax.artifact.manifest import FORMAT, PLATFORMS, Manifest
from maxjax.artifact.reader import Artifact, is_artifact
from maxjax.artifact.write import write_artifact

__all__ = ["FORMAT", "PLATFORMS", "Artifact", "Manifest", "is_artifact", "write_artifact"]

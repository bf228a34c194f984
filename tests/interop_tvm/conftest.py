"""Nothing here is collected where TVM is not installed, or where it is TileLang's."""

from __future__ import annotations

from importlib.util import find_spec

usable = find_spec("tvm") and not find_spec("tilelang")
collect_ignore_glob = [] if usable else ["test_*.py"]

"""Nothing here is collected where TileLang is not installed."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("tilelang") else ["test_*.py"]

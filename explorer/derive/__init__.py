"""From a plain kernel to skeletons: role partitions, pipelines, scopes."""

from explorer.derive.skeletons import Skeleton, derive_skeletons

__all__ = ["Skeleton", "derive_skeletons"]

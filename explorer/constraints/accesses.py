"""What statements touch, remembered: rules ask for the same statement many times.

Invariant: the memory is keyed by identity, since hashing a statement costs as much as deriving its
accesses, and each entry keeps its statement alive; it is emptied when it is full.
"""

from __future__ import annotations

from explorer.ir.access import Access, access
from explorer.ir.nodes import Group, If, Loop, Stmt, While

MEMORY = 4096
_known: dict[int, tuple[Stmt, Access]] = {}


def statement_access(statement: Stmt) -> Access:
    """What one statement, a block included, reads and writes."""
    remembered = _known.get(id(statement))
    if remembered is not None and remembered[0] is statement:
        return remembered[1]
    if isinstance(statement, Loop | If | While | Group):
        parts = [statement_access(child) for child in statement.body]
        found = Access(
            tuple(region for part in parts for region in part.reads),
            tuple(region for part in parts for region in part.writes),
        )
    else:
        found = access(statement)
    if len(_known) >= MEMORY:
        _known.clear()
    _known[id(statement)] = statement, found
    return found

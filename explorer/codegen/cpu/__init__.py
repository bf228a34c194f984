"""C from role programs: one thread a warp, rings and barriers in an arena per block."""

from explorer.codegen.cpu.source import emit_c
from explorer.codegen.cpu.standalone import emit_standalone

__all__ = ["emit_c", "emit_standalone"]

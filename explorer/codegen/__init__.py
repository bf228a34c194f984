"""Programs as source text: C for the cpu. No device and no compiler is needed here."""

from explorer.codegen.cpu import emit_c, emit_standalone

__all__ = ["emit_c", "emit_standalone"]

"""Compile, cache, launch, check, time: what touches a device.

Invariant: kernels and users' functions run in worker processes only.
"""

from explorer.runtime.compiler import Built, compile_library, compiler_version, find_compiler
from explorer.runtime.host import cpu_machine, device_name, machine_here
from explorer.runtime.session import Host, Session
from explorer.runtime.workloads import (
    absolute_ref,
    bundled_workloads,
    load_suite,
    load_workload,
)

__all__ = [
    "Built",
    "Host",
    "Session",
    "absolute_ref",
    "bundled_workloads",
    "compile_library",
    "compiler_version",
    "cpu_machine",
    "device_name",
    "find_compiler",
    "load_suite",
    "load_workload",
    "machine_here",
]

"""A compiled kernel on the device, and its launches.

Invariant: the opt-in to dynamic shared memory is made for every size, since what counts against
the default limit is the sum with static memory; nothing is launched above the device's limit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from explorer.codegen.cuda import REPORT_WORDS, LaunchPlan, TensorSpec
from explorer.errors import EnvironmentFault
from explorer.runtime.cuda.build import read_plan
from explorer.runtime.cuda.maps import MAP_BYTES, encode

_REMEDY = "run on a machine with an NVIDIA card; `tune --compile-only` needs none"


class LaunchError(Exception):
    """The driver refused or lost a launch; the context cannot be used any more."""


class Launch:
    """One kernel bound to one set of tensors: calling it launches once, on the current stream."""

    def __init__(self, loaded: Loaded, arguments: ctypes.Array[Any], kept: object) -> None:
        self._loaded, self._arguments, self._kept = loaded, arguments, kept
        self._address = ctypes.addressof(arguments)

    def __call__(self) -> None:
        self._loaded.launch(self._address)


class Loaded:
    """A kernel loaded from its cubin. LaunchError where the device cannot hold it."""

    def __init__(self, cubin: Path) -> None:
        import cupy  # noqa: PLC0415
        from cuda.bindings import driver  # noqa: PLC0415

        self._driver = driver
        self.plan = read_plan(cubin)
        self._module = cupy.RawModule(path=str(cubin))
        kernel = self._module.get_function(self.plan.entry)
        verify_shared(self.plan, int(kernel.shared_size_bytes), shared_limit_bytes())
        kernel.max_dynamic_shared_size_bytes = self.plan.shared_bytes
        self._function = kernel.kernel.ptr
        self._report = self._report_memory()
        # Launches follow each other on one stream, so that all can use the same.
        self._workspace = {each.name: _poisoned(each) for each in self.plan.workspace}
        self._tickets = cupy.zeros(self.plan.tickets, np.uint32)

    def bind(self, tensors: Mapping[str, Any], scalars: Mapping[str, int] | None = None) -> Launch:
        """A launch on device arrays by name."""
        kept: list[Any] = []
        for parameter in self.plan.parameters:
            match parameter.kind:
                case "map":
                    tensor_map = self.plan.maps[int(parameter.name)]
                    address = int(tensors[tensor_map.tensor].data.ptr)
                    kept.append(
                        ctypes.create_string_buffer(encode(tensor_map, address), MAP_BYTES)
                    )
                case "tensor":
                    kept.append(ctypes.c_uint64(tensors[parameter.name].data.ptr))
                case "scalar":
                    kept.append(ctypes.c_int32((scalars or {})[parameter.name]))
                case "workspace":
                    kept.append(ctypes.c_uint64(self._workspace[parameter.name].data.ptr))
                case "tickets":
                    kept.append(ctypes.c_uint64(self._tickets.data.ptr))
                case "report":
                    kept.append(ctypes.c_uint64(self._report_address))
        arguments = (ctypes.c_void_p * len(kept))(*(ctypes.addressof(each) for each in kept))
        return Launch(self, arguments, (kept, tensors))

    def launch(self, arguments: int) -> None:
        """One launch with a table of argument addresses."""
        import cupy  # noqa: PLC0415

        plan = self.plan
        stream = cupy.cuda.get_current_stream().ptr
        (status,) = self._driver.cuLaunchKernel(
            self._function,
            plan.grid_blocks, 1, 1,
            plan.block_threads, 1, 1,
            plan.shared_bytes,
            stream,
            arguments,
            0,
        )  # fmt: skip
        if int(status):
            raise LaunchError(f"launch of {plan.entry}: {status}")

    # ------------------------------------------------------------ hang reports

    def _report_memory(self) -> np.ndarray[Any, Any] | None:
        if not self.plan.report_words:
            return None
        import cupyx  # noqa: PLC0415

        # Pinned memory is mapped into the device's address space under the host's address, and
        # stays readable after the context is lost.
        memory: np.ndarray[Any, Any] = cupyx.zeros_pinned(self.plan.report_words, np.uint32)
        return memory

    @property
    def _report_address(self) -> int:
        assert self._report is not None
        return int(self._report.ctypes.data)

    @property
    def bounded(self) -> bool:
        """Whether its waits give up and report."""
        return self._report is not None

    def report(self) -> str:
        """Who gave up waiting, role by role, with the number of blocks; empty for nobody."""
        if self._report is None:
            return ""
        return read_report(self.plan, self._report.copy())


def _poisoned(spec: TensorSpec) -> Any:
    """Device memory of which every byte is set, so that what nobody wrote shows as NaN."""
    import cupy  # noqa: PLC0415

    array = cupy.empty(spec.shape, spec.dtype)
    array.view(np.uint8)[...] = 0xFF
    return array


def read_report(plan: LaunchPlan, words: np.ndarray[Any, Any]) -> str:
    """The hang report in one line."""
    records = words.reshape(-1, REPORT_WORDS)
    found: dict[tuple[int, int, int, int], list[int]] = {}
    for index, (site, slot, parity, _) in enumerate(records.tolist()):
        if site:
            block, role = divmod(index, len(plan.roles))
            found.setdefault((role, site - 1, slot, parity), []).append(block)
    parts = []
    for (role, site, slot, parity), blocks in sorted(found.items()):
        where = plan.sites[site]
        side = "full" if where.full else "empty"
        parts.append(
            f"role {plan.roles[role]} waits at {where.pipeline}.{side}[{slot}] parity {parity} "
            f"in {len(blocks)} blocks, first {blocks[0]}"
        )
    return "; ".join(parts)


def verify_shared(plan: LaunchPlan, static_bytes: int, limit_bytes: int) -> None:
    """LaunchError with requested, static and available bytes where they do not fit."""
    if plan.shared_bytes + static_bytes > limit_bytes:
        raise LaunchError(
            f"smem-capacity: dynamic {plan.shared_bytes} B + static {static_bytes} B > "
            f"{limit_bytes} B a block with opt-in"
        )


def shared_limit_bytes() -> int:
    """Shared memory that a block can get with opt-in, of the current device."""
    import cupy  # noqa: PLC0415

    attributes = cupy.cuda.Device().attributes
    return int(attributes["MaxSharedMemoryPerBlockOptin"])


def device_name() -> str:
    """The name of the current device; EnvironmentFault where there is none."""
    try:
        import cupy  # noqa: PLC0415

        if cupy.cuda.runtime.getDeviceCount() < 1:
            raise EnvironmentFault(f"no CUDA device; {_REMEDY}")
        properties = cupy.cuda.runtime.getDeviceProperties(0)
    except EnvironmentFault:
        raise
    except Exception as problem:  # no CuPy, no driver, no device: all are the environment's
        reason = " ".join(str(problem).split())[:160]
        raise EnvironmentFault(f"no CUDA device: {reason}; {_REMEDY}") from None
    return str(properties["name"].decode())

"""CUDA C++ for sm_90a from role programs: bulk copies, mbarriers, wgmma, register requests."""

from explorer.codegen.cuda.kernel import generate
from explorer.codegen.cuda.plan import (
    REPORT_WORDS,
    CudaKernel,
    LaunchPlan,
    Parameter,
    Prediction,
    Site,
    TensorMap,
    TensorSpec,
)

__all__ = [
    "REPORT_WORDS",
    "CudaKernel",
    "LaunchPlan",
    "Parameter",
    "Prediction",
    "Site",
    "TensorMap",
    "TensorSpec",
    "generate",
]

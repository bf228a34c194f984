"""Every peer on the card: it computes what the reference says, and it is timed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import pytest

from explorer.machine import H200
from explorer.runtime import Host, Session, bundled_workloads, load_workload

pytestmark = pytest.mark.gpu

SIZES = ((512, 768, 320), (4096, 4096, 4096), (201, 150, 73))
PEERS = [
    (name, place, kind)
    for name in bundled_workloads()
    for place, peer in enumerate(load_workload(name).peers)
    for kind in (peer.dtypes or load_workload(name).dtypes)
    if peer.machine == H200.name
]


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with Host(H200) as opened:
        yield opened


def alone(name: str, place: int, folder: Path) -> str:
    """A workload with one of its peers only: a session takes the first that there is."""
    path = folder / "alone.py"
    path.write_text(
        "from attrs import evolve\nfrom explorer.runtime import load_workload\n"
        f"whole = load_workload({name!r})\nlocal = evolve(whole, peers=(whole.peers[{place}],))\n"
    )
    return f"{path}:local"


@pytest.mark.parametrize(("name", "place", "kind"), PEERS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_peer_is_right_and_timed(
    name: str, place: int, kind: str, sizes: tuple[int, int, int], host: Host, tmp_path: Path
) -> None:
    workload = load_workload(name)
    peer = workload.peers[place]
    if peer.needs and find_spec(peer.needs) is None:
        pytest.skip(f"no {peer.needs}")
    if kind == "float8_e4m3" and any(size % 16 for size in sizes):
        pytest.skip("the library takes fp8 in sixteens")
    problem = workload.problem(dict(zip("MNK", sizes, strict=True)), kind)
    bound = workload.bound(H200.name, problem.dtype)
    reference = alone(name, place, tmp_path)
    with Session(reference, problem, H200, bound, 4.0, host=host) as opened:
        (samples,) = opened.race([], 10, with_peer=True)
    assert samples, f"{peer.name} failed or was wrong"
    print(f"{name} {problem}: {peer.name} {median(samples):.1f} us")

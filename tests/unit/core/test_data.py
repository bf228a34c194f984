import json

import pytest

from explorer.data import WIDTH, digest, dumps, dumps_line, identifier, loads
from explorer.errors import RecordError, ScheduleError
from explorer.machine import H200, Machine
from explorer.schedule.ws import WSPipeline, WSRole, WSSchedule, WSScope, WSSync


def schedule() -> WSSchedule:
    return WSSchedule(
        8,
        [WSRole("P", warps_lo=0, warps_hi=1, max_nreg=40), WSRole("C", warps_lo=4, warps_hi=8)],
        [WSPipeline("buf", ["As"], 2)],
        [
            WSScope(
                "lk",
                {"P": [WSSync.producer_acquire("buf"), "cin", WSSync.producer_commit("buf")]},
            ),
            WSScope(WSScope.ROOT, {"P": ["lk"]}),
        ],
    )


def test_round_trip() -> None:
    assert loads(dumps(schedule()), WSSchedule) == schedule()
    assert digest(schedule()) == digest(loads(dumps(schedule()), WSSchedule))


def test_a_document_is_broken_only_where_it_is_wide() -> None:
    text = dumps(schedule())
    assert json.loads(text) == json.loads(dumps_line(schedule()))
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert '\n    "pipelines": [{"name": "buf", "buffers": ["As"], "depth": 2}],\n' in text
    assert "\n" not in dumps_line(schedule())
    shapes = dumps(H200)
    assert loads(shapes, Machine) == H200
    assert max(map(len, shapes.splitlines())) <= WIDTH
    assert len(shapes.splitlines()) < len(H200.matrix_shapes) + 20, "several shapes a line"


def corrupt(change: object) -> str:
    document = json.loads(dumps(schedule()))
    change(document)  # type: ignore[operator]
    return json.dumps(document)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(version=99), "format version 99 is not readable"),
        (lambda d: d.update(format="Trial"), "expected a WSSchedule document, got 'Trial'"),
        (lambda d: d.pop("value"), "expected format, version and value"),
        (lambda d: d["value"].update(extra=1), "extra fields found (extra)"),
        (lambda d: d["value"].update(num_warps="8"), "expected int, got '8'"),
        (lambda d: d["value"].update(num_warps=True), "expected int, got True"),
        (lambda d: d["value"]["roles"][0].update(name="a;b"), "not an identifier"),
        (lambda d: d["value"].pop("roles"), "roles"),
    ],
)
def test_misfits_are_one_line(change: object, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        loads(corrupt(change), WSSchedule)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_not_json() -> None:
    with pytest.raises(RecordError, match="not JSON"):
        loads("{", WSSchedule)


@pytest.mark.parametrize("name", ["", "1a", "a b", "a\n", "x" * 65, 'a"', "é"])
def test_identifiers(name: str) -> None:
    with pytest.raises(ScheduleError, match="is not an identifier"):
        identifier(name, "role", ScheduleError)

"""What is tried for matrix products on an H200, and first: tile sizes and hints.

Fast Hopper kernels share a producer warp, two or three consumer warp groups, tiles as large as the
accumulators allow, and rings as deep as shared memory does. Which tile suits a problem is a matter
of its waves: the fullest processor sets the time. Problems of few tiles divide the reduction too,
and those of few rows or columns have narrow tiles.

Rows of a tile along the reduction have 128 bytes where nothing else is said: one swizzled box of
the copy engine, whatever the type.
"""

from __future__ import annotations

from explorer import Hint, Problem

UNITS = 132
SHARED_BYTES, BARRIER_BYTES = 232448, 256
ROW_BYTES = 128
# The copy engine fetches rows in sectors, and more of them where rows begin inside one.
SECTOR_BYTES = 32
DEPTH_MOST = 8
BLOCK_M = (64, 128, 192, 256)
BLOCK_N = (64, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)
BLOCK_K = (32, 64, 128)
# With fewer rows or columns than this, tiles of 64 and more are few, and half empty.
NARROW_EXTENT = 128
NARROW_TILES = (16, 32)
PARTS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
# Streaming costs a tile's sums or two; it pays where a tenth of the processors' time is left.
IDLE_PARTS = 10
PAIR = "roles producer+consumer_0+consumer_1; rings A_shared+B_shared; {} epilogue"
TURNS = "roles producer+consumer_0/consumer_1; rings A_shared+B_shared; {} epilogue"
ONE = "roles producer+consumer; rings A_shared+B_shared; {} epilogue"
SWAPPED = "roles producer+consumer; rings A_shared+B_shared; swapped {} epilogue"
# Registers of a producer and of consumers: two of them, two with 192 accumulators, three.
TWO, TWO_WIDE, THREE = (40, 232), (24, 240), (40, 152)


def h200_tiles(problem: Problem) -> dict[str, tuple[int, ...]]:
    """Tile sizes; narrow ones for few columns, and for few rows, whose operands are swapped."""
    tiles = {"block_M": BLOCK_M, "block_N": BLOCK_N, "block_K": BLOCK_K}
    for size in "MN":
        if problem[size] < NARROW_EXTENT:
            usual = (each for each in tiles[f"block_{size}"] if each <= NARROW_EXTENT)
            tiles[f"block_{size}"] = (*NARROW_TILES, *usual)
    return tiles


# ---------------------------------------------------------------- hints


def h200_hint(
    skeleton: str, tile: tuple[int, int, int], depth: int, nreg: tuple[int, int] = TWO
) -> Hint:
    """One warp loads, gemms lag by one, one block a processor; `nreg` are the registers of
    producer and consumers."""
    block_M, block_N, block_K = tile
    values = {"block_M": block_M, "block_N": block_N, "block_K": block_K, "depth_A_B": depth}
    launch = {"blocks": UNITS, "raster": 2, "group": 8, "warps_producer": 1, "warps_consumer": 4}
    registers = dict(zip(("nreg_producer", "nreg_consumer"), nreg, strict=True))
    return Hint(skeleton, values | launch | registers | {"lag_gemm_C_local": 1})


def also(hint: Hint, **values: int) -> Hint:
    """The hint with other values."""
    return Hint(hint.skeleton, {**hint.values, **values})


def in_pairs(hint: Hint) -> Hint:
    """The hint in clusters of two blocks that share the longer operand."""
    axis = 1 if hint.values["block_N"] > hint.values["block_M"] else 0
    return also(hint, cluster=2, cluster_axis=axis)


def row_elements(problem: Problem, row_bytes: int = ROW_BYTES) -> int:
    """The elements in so many bytes: block_K."""
    return row_bytes * 8 // problem.dtype.bits


def tiles_of(problem: Problem, block_M: int, block_N: int) -> int:
    """The tiles of a problem; of a batch, those of all its products."""
    products = dict(problem.sizes).get("Z", 1)
    return products * -(-problem["M"] // block_M) * -(-problem["N"] // block_N)


# ---------------------------------------------------------------- many tiles

# Skeleton, tile, slots, and registers that are not those of two consumers. The most usual come
# first.
MANY = (
    (PAIR.format("staged"), (128, 256), 3),
    (PAIR.format("staged in 2"), (128, 256), 4),
    (PAIR.format("staged in 2"), (256, 128), 4),
    (PAIR.format("staged"), (128, 192), 4),
    (PAIR.format("staged"), (128, 128), 6),
    (PAIR.format("direct"), (128, 256), 4),
    (TURNS.format("staged"), (128, 192), 4, TWO_WIDE),
    (TURNS.format("staged"), (128, 160), 5),
    (TURNS.format("staged"), (128, 128), 6),
    (TURNS.format("staged"), (64, 256), 4),
    (ONE.format("staged"), (64, 256), 4),
    (ONE.format("direct"), (64, 128), 8),
)
PAIRED = (
    (PAIR.format("staged"), (128, 256), 3),
    (PAIR.format("staged in 2"), (128, 256), 4),
    (PAIR.format("staged in 2"), (256, 128), 4),
    (PAIR.format("staged in 2"), (128, 192), 5),
)
# Tiles by their rows: who computes them, and the widest that leaves registers to spare.
FITTED = ((128, PAIR, 256), (192, ONE, 192), (256, PAIR, 192))


def many_hints(problem: Problem) -> tuple[Hint, ...]:
    """Tiles that suit most problems, then those whose waves suit this one."""
    block_K = row_elements(problem)

    def hint(
        skeleton: str, tile: tuple[int, int], depth: int, nreg: tuple[int, int] = TWO
    ) -> Hint:
        return h200_hint(skeleton, (*tile, block_K), depth, nreg)

    usual = [hint(*each) for each in MANY]
    usual += [in_pairs(hint(*each)) for each in PAIRED]
    found = []
    for each in (*usual, *fitted_hints(problem)):
        found.append(each)
        if leaves_idle(each, problem):
            found.append(also(each, stream=1))
    return tuple(found)


def leaves_idle(hint: Hint, problem: Problem) -> bool:
    """Whether the last tiles are worth streaming: their wave is far from full."""
    tile = (hint.values["block_M"], hint.values["block_N"])
    count = waves(problem, *tile, pairs=False)
    idle = count * UNITS - tiles_of(problem, *tile)
    turns = hint.skeleton.startswith(TURNS.partition(";")[0])
    return count > 1 and IDLE_PARTS * idle >= count * UNITS and not turns


def fitted_hints(problem: Problem) -> tuple[Hint, ...]:
    """Tiles whose waves over the processors take the least: the two best widths for each number
    of rows, in blocks of their own and in pairs."""
    found = []
    for rows, roles, widest in FITTED:
        for pairs in (False, True):
            widths = best_widths(problem, rows, widest, pairs)
            hints = (fitted_hint(problem, roles, rows, columns) for columns in widths)
            found += [in_pairs(hint) if pairs else hint for hint in hints]
    return tuple(found)


def best_widths(problem: Problem, rows: int, widest: int, pairs: bool) -> list[int]:
    """The two widths of a tile of so many rows that take the least."""

    def cost(columns: int) -> int:
        return waves(problem, rows, columns, pairs) * tile_cost(rows, columns)

    return sorted((width for width in BLOCK_N if 96 <= width <= widest), key=cost)[:2]


def tile_cost(rows: int, columns: int) -> int:
    """What a step of the reduction takes, in products: those of the tile, and what they lose to
    the fetch of its operands, of which narrow tiles have more."""
    return rows * columns + 16 * (rows + columns)


def waves(problem: Problem, rows: int, columns: int, pairs: bool) -> int:
    """How often the fullest processor works on a tile; those of a pair are together."""
    if pairs:
        rows, columns = (2 * rows, columns) if columns > rows else (rows, 2 * columns)
    return -(-tiles_of(problem, rows, columns) // (UNITS // 2 if pairs else UNITS))


def fitted_hint(problem: Problem, roles: str, rows: int, columns: int) -> Hint:
    """A tile with as many slots as fit beside a staging buffer, of 16-bit elements in pieces."""
    slot = (rows + columns) * ROW_BYTES
    depths = {
        pieces: (SHARED_BYTES - BARRIER_BYTES - rows * columns * 2 // pieces) // slot
        for pieces in (2, 3)
        if columns % (8 * pieces) == 0
    }
    pieces = max(depths, key=lambda each: (depths[each], -each))
    tile, depth = (rows, columns, row_elements(problem)), min(depths[pieces], DEPTH_MOST)
    skeleton = roles.format(f"staged in {pieces}")
    if roles == ONE:
        return also(h200_hint(skeleton, tile, depth, THREE), warps_consumer=12)
    return h200_hint(skeleton, tile, depth)


# ---------------------------------------------------------------- few tiles

# The reduction in parts fills the processors.
FEW = (
    (PAIR.format("staged"), (128, 128), 6),
    (PAIR.format("staged"), (128, 64), 8),
    (ONE.format("staged"), (64, 112), 8),
    (ONE.format("staged"), (64, 128), 8),
    (ONE.format("direct"), (64, 64), 8),
    (ONE.format("direct"), (64, 128), 8),
)
FEW_PAIRED = ((PAIR.format("staged"), (128, 64), 8), (ONE.format("staged"), (64, 128), 8))
# Epilogue, tile size along the long side of the result, bytes of a row of both operands, slots:
# all that is in flight hides the latency of memory, which bounds such problems.
NARROW = (
    ("direct", 128, 128, 8),
    ("direct", 64, 256, 8),
    ("direct", 128, 256, 5),
    ("staged", 128, 128, 8),
    ("direct", 64, 128, 8),
)


def few_hints(problem: Problem) -> tuple[Hint, ...]:
    """Small tiles for a problem that does not fill the processors with large ones; else none."""
    if tiles_of(problem, 128, 256) >= UNITS:
        return ()
    block_K = row_elements(problem)
    fitting = [each for each in FEW if problem["M"] > each[1][0] // 2 or each[1][0] == 64]
    found = [
        also(h200_hint(skeleton, (*tile, block_K), depth), split=parts(problem, (*tile, block_K)))
        for skeleton, tile, depth in fitting
    ]
    if off_sector(problem):
        found += [
            in_pairs(h200_hint(skeleton, (*tile, block_K), depth))
            for skeleton, tile, depth in FEW_PAIRED
        ]
    return tuple(found)


def parts(problem: Problem, tile: tuple[int, int, int]) -> int:
    """The most parts of the reduction that run at once, each of four iterations or more."""
    tiles, trips = tiles_of(problem, tile[0], tile[1]), -(-problem["K"] // tile[2])
    return max(p for p in PARTS if p == 1 or (tiles * p <= UNITS and 4 * p <= trips))


def off_sector(problem: Problem) -> bool:
    """Whether rows of some operand may begin inside a sector of memory."""
    bits = problem.dtype.bits
    return any(problem[size] * bits % (8 * SECTOR_BYTES) for size in "MNK")


def narrow_hints(problem: Problem) -> tuple[Hint, ...]:
    """Narrow tiles for few rows, whose operands are swapped, or for few columns; else none."""
    few_rows = problem["M"] <= problem["N"]
    extent = min(problem["M"], problem["N"])
    if extent > NARROW_TILES[-1]:
        return ()
    narrow = next(size for size in NARROW_TILES if extent <= size)
    found = []
    for epilogue, wide, row_bytes, depth in NARROW:
        block_K = row_elements(problem, row_bytes)
        if block_K in BLOCK_K:
            tile = (narrow, wide, block_K) if few_rows else (wide, narrow, block_K)
            hint = h200_hint((SWAPPED if few_rows else ONE).format(epilogue), tile, depth)
            found.append(also(hint, split=parts(problem, tile)))
    return tuple(found)


# ---------------------------------------------------------------- all of them


def h200_hints(problem: Problem) -> tuple[Hint, ...]:
    """What is tried first for operands of 16 or 8 bits, the likeliest to win before the others."""
    narrow, few = narrow_hints(problem), few_hints(problem)
    return (*narrow, *few) if narrow else (*few, *many_hints(problem))


TF32_HINTS = (
    h200_hint(PAIR.format("direct"), (128, 256, 32), 4),
    h200_hint(PAIR.format("staged in 2"), (128, 256, 32), 3),
    h200_hint(PAIR.format("direct"), (128, 192, 32), 5),
    h200_hint(PAIR.format("staged"), (128, 128, 32), 4),
    h200_hint(PAIR.format("direct"), (256, 128, 32), 4),
    h200_hint(PAIR.format("direct"), (128, 128, 32), 6),
)

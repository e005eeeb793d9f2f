"""Random workloads with routers: a destination is its source, filtered, in order (oracle 8)."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crash.router_run import Op, RouterRun
from tests.crash.scenarios import tiny

TOPICS = st.sampled_from(["a", "b", "c"])
TAGS = st.sampled_from([None, "x", "y"])
FILTERS = st.sampled_from([None, "x"])
CLASSES = st.sampled_from(["memory", "disk", "fsync"])
STEPS = st.sampled_from(["sync", "checkpoint", "snapshot", "maintain", "relocate", "sweep"])


def op(do: str, name: str, count: int = 0, tag: str | None = None) -> Op:
    return Op(do, name, count, tag)


def put(name: str, source: str, dest: str, tag: str | None) -> Op:
    return Op("put", name, fields={"source": source, "dest": dest, "filter": tag})


OPERATIONS = st.lists(
    st.one_of(
        st.builds(op, st.just("append"), TOPICS, st.integers(1, 12), TAGS),
        st.builds(op, st.just("delete"), TOPICS, st.just(0), st.sampled_from(["x", "y"])),
        st.builds(op, st.just("delete"), TOPICS, st.integers(1, 40), st.none()),
        TOPICS.map(lambda topic: Op("read", topic)),
        st.just(Op("forward")),
        STEPS.map(lambda step: Op("work", step)),
        st.sampled_from([Op("restart", "kill"), Op("restart", "clean")]),
        st.builds(put, st.just("r"), st.just("a"), st.just("b"), FILTERS),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(
    classes=st.tuples(CLASSES, CLASSES, CLASSES),
    filters=st.tuples(FILTERS, FILTERS),
    operations=OPERATIONS,
    shards=st.integers(1, 3),
    seed=st.integers(0, 2**16),
)
def test_a_chain_of_routers_keeps_every_copy_in_its_place(
    classes: tuple[str, str, str],
    filters: tuple[str | None, str | None],
    operations: list[Op],
    shards: int,
    seed: int,
) -> None:
    run = RouterRun(tiny(shards))
    created = zip("abc", classes, strict=True)
    run.run([Op("create", t, fields={"durability": kind}) for t, kind in created])
    run.run([put("r", "a", "b", filters[0]), put("s", "b", "c", filters[1])])
    run.run(operations)
    run.check(kill=True)
    cut = run.disks.copy().power_cut(seed)
    RouterRun(run.config, disks=cut, known=run.known, now_ms=run.clock.now_ms()).check(kill=False)

"""Groups over a topic with partitions."""

from tests.unit.engine.place import Place


def test_partitions_are_shared_and_new_ones_found(place: Place) -> None:
    log = place.log
    log.create("orders", partitions=2)
    log.append("orders", [{"data": n, "key": f"k{n}"} for n in range(20)])
    first = log.join("g", member="m", topics=["orders"])
    assert first.assigned == {"orders": [0, 1]}
    polled = log.poll("g", member="m", generation=first.generation)
    assert {batch.topic for batch in polled.batches} == {"orders"}
    assert polled.count == 20
    log.commit("g", polled.positions, member="m", generation=first.generation)
    log.create("orders", partitions=3)
    grown = log.heartbeat("g", member="m", generation=first.generation)
    assert (grown.generation, grown.assigned) == (first.generation + 1, {"orders": [0, 1, 2]})
    log = place.kill()
    assert log.heartbeat("g", member="m", generation=0).generation == grown.generation
    assert log.group_state("g").lag_total == 0

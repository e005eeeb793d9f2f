"""Manifests to plan with."""

from topics.model.segments import HoleState, Manifest, SegmentLocation, SegmentState


def segment(first: int, last: int, *, sealed: bool = True) -> SegmentState:
    """Make a segment whose records have their seq, times ten, as their time."""
    uri = f"file:///d/seg-{first}"
    return SegmentState(
        first_seq=first, last_seq=last, records=last - first + 1, live_records=last - first + 1,
        bytes=100, first_ts=first * 10, last_ts=last * 10, tier="hot",
        location=SegmentLocation(data=f"{uri}.data", idx=f"{uri}.idx"), sealed=sealed,
    )  # fmt: skip


def manifest(
    *segments: SegmentState,
    head: int,
    evict_floor: int = 1,
    earliest: int | None = None,
    holes: tuple[tuple[int, int, str], ...] = (),
) -> Manifest:
    return Manifest(
        topic="a", epoch=1, head_seq=head, earliest_seq=earliest or evict_floor,
        evict_floor=evict_floor, evict_reason="cap", segments=list(segments), pin=None,
        holes=[HoleState(first_seq=a, last_seq=b, reason=r) for a, b, r in holes],
    )  # fmt: skip

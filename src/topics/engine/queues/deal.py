"""How jobs are dealt to several claimers at once: in proportion to what each wants."""

from collections.abc import Sequence


def plan_deal(available: int, wants: Sequence[int]) -> list[int]:
    """Return how many each gets: all that there is, nobody more than wanted, the odd ones fairly.

    Shares are proportional; what rounding leaves goes to the largest remainders, then to the first.
    """
    total = sum(wants)
    if available >= total:
        return list(wants)
    shares = [available * want // total for want in wants]
    left = available - sum(shares)
    by_remainder = sorted(range(len(wants)), key=lambda i: -(available * wants[i] % total))
    for i in by_remainder[:left]:
        shares[i] += 1
    return shares

"""`topics tour`: the embedded log in five steps, on a real data directory."""

import typer

import topics
from topics.cli.settings import with_settings
from topics.config import LoadedConfig

TOPIC = "tour"
KEPT = 3  # a small cap, so that the second step already pushes records out


@with_settings
def run_tour(loaded: LoadedConfig) -> None:
    """Append, read back, and see how a gap is told: a minute with the log."""
    directory = loaded.config.data_dir
    with topics.open(directory) as log:
        _step(f"create the topic {TOPIC!r}, synced before each answer, at most {KEPT} records")
        log.create(TOPIC, durability="fsync", cap_records=KEPT)

        _step("append five records")
        written = log.append(
            TOPIC, [{"data": {"step": step}, "tag": f"step:{step}"} for step in range(1, 6)]
        )
        typer.echo(f"  seqs {written.first_seq} to {written.last_seq}, on the disk")

        _step("read from the start")
        page = log.diff(TOPIC, from_seq=0, limit=10)
        if page.tombstone is not None:
            gap = page.tombstone
            typer.echo(f"  seqs {gap.gap_from} to {gap.gap_to} are gone: {gap.reason}")
        for record in page.records:
            typer.echo(f"  seq {record.seq}: {record.data}")
        typer.echo(f"  caught up: {page.caught_up}; the next read starts at {page.next_from_seq}")
    _step("what now")
    typer.echo(f"  the data is in {directory}: run the tour again and the seqs go on")
    typer.echo(f"  topics verify {directory}     check every byte")
    typer.echo(f"  topics inspect {directory}    see what is where")
    typer.echo("  in Python: with topics.open(...) as log, see README.md")
    typer.echo("  the HTTP server is the next step of this project and is not there yet")


def _step(text: str) -> None:
    typer.secho(f"- {text}", bold=True)

"""Audit: every frame of every segment, and a lake against the log it was made from.

`plan.py` says what there should be, `check.py` reads files on executors and `tail.py` asks the
server for the rest, `lake.py` compares rows, `report.py` sums up and `page.py`
draws. Reference: docs/reference/pipeline-jobs.md.
"""

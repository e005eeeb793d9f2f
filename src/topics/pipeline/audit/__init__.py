"""Audit: every frame of every segment, and a lake against the log it was made from.

`plan.py` says which files there should be, `check.py` reads them on executors, `lake.py` compares
rows, `report.py` sums up and `page.py` draws. Reference: docs/reference/pipeline-jobs.md.
"""

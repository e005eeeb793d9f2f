"""The jobs of the pipeline: what each does is one file, what all share is `job.py`."""

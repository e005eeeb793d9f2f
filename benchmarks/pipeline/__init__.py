"""`make bench-pipeline`: Spark over topics, beside Spark over files."""

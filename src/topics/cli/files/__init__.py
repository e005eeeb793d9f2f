"""Records in files: JSON lines and Parquet, written by `topics export`, read by `topics import`."""

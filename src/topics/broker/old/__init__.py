"""The files of the old broker become partitioned topics and groups: `topics import-broker`."""

"""What an operator does to a data directory that nobody has open: verify, inspect, repair.

Pure work on a `Disk`: no terminal, no environment. The commands are in `topics.cli`.
Keeps: nothing here ever changes the directory it looks at; `repair` writes to another one.

    source   bytes of a file, also past sectors that cannot be read
    wal      every frame of every log, and where it is torn or damaged
    frames   every frame of a segment, also past damage
    state    snapshot + control frames → what is known of each topic
"""

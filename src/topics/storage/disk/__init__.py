"""The door to the disk, and the disks behind it."""

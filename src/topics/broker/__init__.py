"""The V1 line protocol: the log as a small broker over TCP, and the way in for an old one's files.

The words of the protocol are explained in docs/reference/line-protocol.md.
"""

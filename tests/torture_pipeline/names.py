"""The topics of the torture."""

SOURCE = "source"
COPY = "copy"

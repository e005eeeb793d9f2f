"""What stops one part of the measurement; the others go on."""


class CannotMeasure(Exception):
    """A server did not do what the measurement needs; the message goes into the table."""

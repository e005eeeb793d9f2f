"""What a test of a durable log needs: a disk that loses power, a clock that is set by hand."""

"""`python -m topics` is the command `topics`."""

from topics.cli.main import main

if __name__ == "__main__":
    main()

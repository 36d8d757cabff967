"""`python -m greenfast` is the `greenfast` command."""

from greenfast.app.cli.main import main

if __name__ == "__main__":
    main()

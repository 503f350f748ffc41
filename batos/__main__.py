"""`python -m batos` is `batos run`; with a verb it is the command line."""

from batos.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m batos` is `batos run`; with a verb it is the command line. (`batos` alone is the dashboard.)"""

from batos.cli import main

if __name__ == "__main__":
    raise SystemExit(main(alone="run"))

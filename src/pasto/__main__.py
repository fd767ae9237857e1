"""`python -m pasto` is the `pasto` command."""

from pasto.cli import main

if __name__ == "__main__":
    main(prog_name="pasto")

"""python -m foretell, for where the command is not on the path."""

from foretell.cli import main

main()

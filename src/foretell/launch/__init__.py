"""How people start training: scripts and configuration files, read but never run."""

from foretell.launch.beside import beside
from foretell.launch.launch import Launch
from foretell.launch.reader import read_launch

__all__ = ["Launch", "beside", "read_launch"]

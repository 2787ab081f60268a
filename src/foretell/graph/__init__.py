"""Graphs: models as data, and how they are captured."""

from foretell.graph.graph import Graph, Kinds, Parameters, Storages
from foretell.graph.ops import DType, OpClass, Phase, Role
from foretell.graph.optimizer import OPTIMIZERS, with_optimizer
from foretell.graph.sources import graph_of
from foretell.graph.store import GraphCache, load_graph, save_graph

__all__ = [
    "OPTIMIZERS",
    "DType",
    "Graph",
    "GraphCache",
    "Kinds",
    "OpClass",
    "Parameters",
    "Phase",
    "Role",
    "Storages",
    "graph_of",
    "load_graph",
    "save_graph",
    "with_optimizer",
]

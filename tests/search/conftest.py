"""Models and meshes for the tests of the search."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from unity_dsl.graph.graph import Model
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.graph.model_graph import build_model
from unity_dsl.index.declarations.loading import load_library
from unity_dsl.index.library import Library
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.span import Source

TWO = Mesh((MeshAxis("a", 2),))
FOUR = Mesh((MeshAxis("a", 2, 1), MeshAxis("b", 2)))
EQUAL = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))
"""A mesh whose axes are interchangeable."""

Build = Callable[[str], Model]


@pytest.fixture(scope="session")
def library() -> Library:
    return load_library()


@pytest.fixture(scope="session")
def build(library: Library) -> Build:
    return lambda text: build_model(parse_model(Source("model.udl", text)), library)

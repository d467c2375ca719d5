"""Modules without weights in memory, and their import."""

from __future__ import annotations

import re

from torch import nn

from unity_dsl.importer.capture import module_of, without_weights
from unity_dsl.importer.model_import import import_module

from . import modules

FACTORY = f"{modules.__name__}:language_model"


def test_matrices_take_no_memory() -> None:
    """They take one element each and keep their shapes, also if they are tied."""
    module, _, _ = module_of(FACTORY, weights=False)
    given, _, _ = module_of(FACTORY)
    assert [tuple(weight.shape) for weight in module.parameters()] == [tuple(w.shape) for w in given.parameters()]
    for name, weight in module.named_parameters():
        held = weight.untyped_storage().nbytes()
        assert held == (weight.nbytes if weight.dim() == 1 else weight.element_size()), name
    with without_weights():
        nn.Linear(2, 2)
    assert not nn.Linear(2, 2).weight.is_meta, "what is made later is as ever"


def test_the_model_is_the_same_but_for_initial_values() -> None:
    whole = import_module(FACTORY, "m", verified=False).files
    light = import_module(FACTORY, "m", weights=False).files
    assert light["weights.json"] == whole["weights.json"] and light["data.py"] == whole["data.py"]
    without = [re.sub(r" ~ (normal|fan_in_uniform)\(.*\)", "", found["m.udl"]) for found in (whole, light)]
    assert without[0] == without[1] and "~ normal(0.02)" in light["m.udl"]

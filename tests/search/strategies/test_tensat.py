"""The cheapest extraction on one device, against all extractions."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from unity_dsl.index.library import Library
from unity_dsl.machine.machine import load_machine
from unity_dsl.rules.shipped_rules import ShippedRules, shipped_sources
from unity_dsl.rules.substitution import Substitution, substitution_of
from unity_dsl.search.joint.extracted_model import algebra_of, extracted
from unity_dsl.search.model_variants.variant_enumeration import SingleDevice
from unity_dsl.search.strategies.taso import taso
from unity_dsl.search.strategies.tensat import tensat

from ..conftest import Build
from .conftest import MakeSpace
from .test_backtracking import BIASED


def test_it_is_the_cheapest_extraction(build: Build, library: Library, space: MakeSpace) -> None:
    machine, model = load_machine("dgx-a100"), build(BIASED)
    rules = ShippedRules(shipped_sources(), library).fitting(model)
    found = replace(space(model, "tensat", (2,)), rules=rules)
    chosen, alone = tensat(found), SingleDevice(machine, library)
    usable = [one for one in (substitution_of(rule, library) for rule in rules) if isinstance(one, Substitution)]
    algebra = algebra_of(model, usable, machine, library)
    assert algebra.extractions > 1
    ((prefix, graph),) = algebra.graphs.items()
    every = product(*(range(group.extractions) for group in graph.groups))
    models = [variant.model for numbers in every if (variant := extracted(algebra, {prefix: numbers})) is not None]
    assert alone.seconds(chosen.variant.model) == pytest.approx(min(map(alone.seconds, models)))
    assert alone.seconds(chosen.variant.model) <= alone.seconds(taso(found).variant.model) * (1 + 1e-9)


def test_without_rules_nothing_is_changed(build: Build, space: MakeSpace) -> None:
    chosen = tensat(space(build(BIASED), "tensat", (2,)))
    assert not chosen.variant.rules

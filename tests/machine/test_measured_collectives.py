"""Measured collectives: the line fitted to a curve, and prices of steps from that line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unity_dsl.graph.collective_steps import Step, StepKind
from unity_dsl.graph.layout import Mesh, MeshAxis
from unity_dsl.machine.collective_price import price_step, price_steps
from unity_dsl.machine.machine import Machine, load_machine, read_machine
from unity_dsl.machine.measured_collectives import nearest_line
from unity_dsl.machine.measured_curves import Curve
from unity_dsl.resources import folder
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.span import Source

LOCAL = (folder("machines") / "local.toml").read_text()
MEASURED = """
[[collective]]
kind = "all_reduce"
devices = 2
bytes = [1000, 1000000]
time_us = [110, 10100]
"""
"""100 us of latency and 0.01 us per byte."""

MESH = Mesh((MeshAxis("a", 2), MeshAxis("b", 2)))


@pytest.fixture(scope="module")
def machine() -> Machine:
    return read_machine(Source("mine.toml", LOCAL + MEASURED))


def test_a_line_is_found_again() -> None:
    amounts = (1e3, 1e4, 1e5, 1e6)
    latency, per_byte = nearest_line(Curve(amounts, tuple(3e-5 + 2e-9 * n for n in amounts)))
    assert (latency, per_byte) == pytest.approx((3e-5, 2e-9))


def test_neither_part_is_negative() -> None:
    """Time that grows faster than the bytes has no latency; time that does not grow has no cost per byte."""
    random = np.random.default_rng(1)
    for _ in range(50):
        amounts = np.cumsum(random.exponential(1e4, 4))
        seconds = np.sort(random.exponential(1e-4, 4))
        latency, per_byte = nearest_line(Curve(tuple(amounts), tuple(seconds)))
        assert latency >= 0
        assert per_byte >= 0
        assert latency + per_byte > 0


def test_a_measured_step_is_priced_by_its_line(machine: Machine) -> None:
    """A device holds a quarter of the tensor, before the step and after it."""
    price, held = price_step(Step(StepKind.ALL_REDUCE, (0,)), MESH, machine, 0.25)
    assert held == 0.25
    assert price.seconds(4e6) == pytest.approx(100e-6 + 1e6 * 1e-8)


def test_others_are_priced_by_the_links(machine: Machine) -> None:
    """Another collective, and the same collective over more devices."""
    for step in (Step(StepKind.ALL_GATHER, (0,)), Step(StepKind.ALL_REDUCE, (0, 1))):
        found = price_steps([step], MESH, machine, 1.0)
        assert found == price_steps([step], MESH, load_machine("local"), 1.0)
    assert replace(machine, collectives=load_machine("local").collectives) != machine


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        ('kind = "all_reduce"', 'kind = "broadcast"', "`broadcast`"),
        ("devices = 2", "devices = 2.5", "whole number"),
        ("bytes = [1000, 1000000]", "byte = [1000, 1000000]", "unknown key"),
        ("devices = 2", "", "is missing"),
    ],
)
def test_wrong_sections_are_told(before: str, after: str, word: str) -> None:
    with pytest.raises(InputError) as raised:
        read_machine(Source("mine.toml", LOCAL + MEASURED.replace(before, after)))
    assert raised.value.diagnostic.code == "E304"
    assert word in raised.value.diagnostic.message

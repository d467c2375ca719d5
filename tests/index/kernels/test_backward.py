"""The gradients of several inputs as one instance."""

from __future__ import annotations

from unity_dsl.index.instantiation.instantiate import Shape, instantiate
from unity_dsl.index.kernels.backward import aliases, backward_instance
from unity_dsl.index.library import Library


def test_a_cotangent_that_is_the_output_s_as_it_is_is_computed_by_nothing(library: Library) -> None:
    instance = instantiate(library.operators["add"], [Shape((2, 3)), Shape((3,))], {})
    assert aliases(backward_instance(instance, library, (0, 1))) == {"d_x": "d_z"}


def test_the_first_part_of_a_tensor_is_not_that_tensor(library: Library) -> None:
    """Its positions have the same numbers, but it is no alias of the tensor."""
    instance = instantiate(library.operators["concat"], [Shape((2, 3)), Shape((2, 4))], {"dim": 1})
    backward = backward_instance(instance, library, (0, 1))
    assert [backward.shape(output) for output in backward.outputs] == [(2, 3), (2, 4)]
    assert aliases(backward) == {}

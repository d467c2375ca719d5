"""Element functions one line of which contradicts the others, by the code of the diagnostic."""

from __future__ import annotations

WRONG_FUNCTIONS = {
    "E114": {
        "another_primitive": """fn turn(x)
  derivative x: -sin(x)
  torch: torch.sin(x)
  numpy: np.cos(x)
""",
        "only_below_zero": """fn bend(x)
  derivative x: [x > 0] - [x < 0]
  torch: torch.relu(x)
  numpy: np.abs(x)
""",
        "only_beyond_twenty": """fn plus(x) = log(1 + exp(x))
  derivative x: sigmoid(x)
  torch: F.softplus(x)
""",
        "slope_of_torch_at_a_tie": """fn ramp(x) = maximum(x, 0)
  derivative x: [x > 0] + [x == 0] / 2
  torch: torch.relu(x)
""",
        "slope_of_torch_one_at_zero": """fn ramp(x) = maximum(x, 0)
  derivative x: [x >= 0]
  torch: torch.relu(x)
""",
        "swapped_operands": """fn less(a, b) = a - b
  derivative a: 1
  derivative b: -1
  torch: torch.sub(b, a)
""",
        "same_value_without_slope": """fn same(x) = x * x
  derivative x: 2 * x
  torch: torch.square(torch.detach(x))
""",
        "half_the_slope": """fn same(x) = x + x
  derivative x: 2
  torch: torch.add(x, torch.detach(x))
""",
        "bounds_of_a_clamp": """fn six(x) = minimum(maximum(x, 0), 6)
  derivative x: [x > 0] * [x < 6]
  torch: F.hardtanh(x, 0, 6.01)
""",
        "slope_of_a_clamp_at_its_bound": """fn six(x) = minimum(maximum(x, 0), 6)
  derivative x: [x > 0] * [x < 6]
  torch: torch.clamp(x, 0, 6)
""",
        "approximate": """fn soft(x) = x * (1 + erf(x * 0.7071067811865476)) / 2
  derivative x: (1 + erf(x * 0.7071067811865476)) / 2 + x * 0.3989422804014327 * exp(-(x * x) / 2)
  torch: F.gelu(x, approximate="tanh")
""",
        "numpy_against_the_definition": """fn square(x) = x * x
  derivative x: 2 * x
  torch: torch.square(x)
  numpy: np.power(x, 3)
""",
        "only_far_out": """fn keep(x) = x
  derivative x: 1
  torch: torch.clamp(x, -300, 300)
""",
        "another_shape": """fn keep(x) = x
  derivative x: 1
  torch: torch.unsqueeze(x, 0)
""",
        "another_type": """fn keep(x)
  derivative x: 0
  torch: torch.ne(x, 0)
  numpy: np.sign(np.abs(x))
""",
        "over_all_elements": """fn keep(x) = x
  derivative x: 1
  torch: torch.cumsum(x, 0)
""",
        "never_defined": """fn lost(x) = log(-1 - x * x)
  derivative x: 2 * x / (1 + x * x)
""",
        "base_and_exponent": """fn raised(x, y)
  derivative x: y * pow(x, y - 1)
  derivative y: select(x > 0, pow(x, y) * log(x), 0)
  torch: torch.pow(y, x)
  numpy: np.power(x, y)
""",
    },
    "E115": {
        "wrong_factor": """fn cube(x) = x * x * x
  derivative x: 2 * x * x
""",
        "wrong_sign": """fn turn(x) = cos(x)
  derivative x: sin(x)
""",
        "of_a_primitive": """fn turn(x)
  derivative x: -cos(x)
  torch: torch.cos(x)
  numpy: np.cos(x)
""",
        "one_side_of_a_kink": """fn leak(x) = select(x > 0, x, x / 10)
  derivative x: select(x > 0, 1, 1 / 5)
""",
        "only_beyond_a_constant": """fn bounded(x) = minimum(x, 30)
  derivative x: [x < 31]
""",
        "only_within_a_narrow_interval": """fn bump(x) = x + maximum(0, 1 - abs(100 * x - 700))
  derivative x: 1
""",
        "kink_where_a_product_crosses": """fn crossing(x) = maximum(3 * x, 7)
  derivative x: 3 * [x > 2]
""",
        "outside_of_the_slopes_at_a_kink": """fn ramp(x) = maximum(x, 0)
  derivative x: [x > 0] + 5 * [x == 0]
""",
        "by_the_other_parameter": """fn scaled(x, y) = x * x * y
  derivative x: 2 * x * y
  derivative y: x * y
""",
        "only_for_negative_numbers": """fn even(x) = x * x * x * x
  derivative x: 4 * abs(x) * abs(x) * abs(x)
""",
        "numpy_and_torch_agree": """fn expless(x)
  derivative x: exp(x) - 1
  torch: torch.expm1(x)
  numpy: np.expm1(x)
""",
        "a_constant_off_in_the_sixth_digit": """fn soft(x) = erf(x / 2)
  derivative x: 0.564189 * exp(-(x * x) / 4)
""",
    },
    "E116": {
        "too_many_operands": """fn same(x) = exp(x)
  derivative x: exp(x)
  torch: torch.exp(x, 2, 3)
""",
        "unknown_keyword": """fn same(x) = x
  derivative x: 1
  torch: F.leaky_relu(x, slope=1)
""",
        "wrong_type": """fn same(x) = x
  derivative x: 1
  torch: F.leaky_relu(x, [1])
""",
        "numpy_that_overwrites": """fn same(x)
  derivative x: exp(x)
  torch: torch.exp(x)
  numpy: np.exp(x, x)
""",
        "numpy_keyword": """fn same(x)
  derivative x: exp(x)
  torch: torch.exp(x)
  numpy: np.exp(x, order=2)
""",
        "in_place": """fn same(x) = select(x > 0, x, x / 10)
  derivative x: select(x > 0, 1, 1 / 10)
  torch: F.leaky_relu(x, 0.1, True)
""",
        "axis_out_of_range": """fn same(x) = x
  derivative x: 1
  torch: torch.flip(x, [3])
""",
    },
}

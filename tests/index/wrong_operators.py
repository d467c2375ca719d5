"""Operators whose `torch:` contradicts their statements, by the code of the diagnostic."""

from __future__ import annotations


def one(native: str, value: str, attributes: str = "") -> str:
    """An operator of one tensor that treats each element by itself."""
    return f"op odd(x: [b..]{attributes}) -> y: [b..]\n  y[b..] = {value}\n  torch: {native}\n"


NORM = """op odd(x: [b.., c]; eps = 1e-5) -> y: [b.., c]
  mean[b..] = sum(c) x[b.., c] / |c|
  d[b.., c] = x[b.., c] - mean[b..]
  v[b..] = sum(c) d[b.., c] * d[b.., c] / {count}
  y[b.., c] = d[b.., c] {scaled}
  torch: F.layer_norm(x, [|c|], eps=eps)
"""
BATCH_NORM = """op odd(x: [n, c], gain: [c], bias: [c], mean: [c], variance: [c]; momentum = 0.1, eps = 1e-5) -> y: [n, c], m: [c], v: [c]
  a[c] = sum(n) x[n, c] / |n|
  d[n, c] = x[n, c] - a[c]
  s[c] = sum(n) d[n, c] * d[n, c] / |n|
  y[n, c] = d[n, c] * rsqrt(s[c] + eps) * gain[c] + bias[c]
  m[c] = (1 - momentum) * mean[c] + momentum * a[c]
  v[c] = (1 - momentum) * variance[c] + momentum * s[c]{unbiased}
  eval
    y[n, c] = (x[n, c] - mean[c]) * rsqrt(variance[c] + eps){gain} + bias[c]
    m[c] = mean[c]
    v[c] = variance[c]
  torch:
    m = torch.clone(torch.detach(mean))
    v = torch.clone(torch.detach(variance))
    y = F.batch_norm(x, m, v, gain, bias, training, momentum, eps)
"""
LOSS = """op odd(x: [n..], y: [n..]) -> z: []
  z[] = sum(n..) (x[n..] - y[n..]) * (x[n..] - y[n..]){mean}
  torch: F.mse_loss(x, y{reduction})
"""
POOL = """op odd(x: [n, c, h, w]; size = 3, stride = 1, pad = 1) -> y: [n, c, p, q]
  where r == size, s == size, size >= 2 * pad, pad >= 0, stride >= 1
  where p == (h + 2 * pad - size) // stride + 1, q == (w + 2 * pad - size) // stride + 1
  y[n, c, p, q] = {value}
  torch: {native}
"""
WINDOW = "x[n, c, p * stride + r - pad, q * stride + s - pad else {outside}]"
ATTENTION = """op odd(q: [b, h, s, k], key: [b, h, t, k], value: [b, h, t, v]) -> y: [b, h, s, v]
  d[b, h, s, t] = (sum(k) q[b, h, s, k] * key[b, h, t, k]) * rsqrt(|k|)
  x[b, h, s, t] = select({seen}, d[b, h, s, t], -inf)
  m[b, h, s] = max(t) x[b, h, s, t]
  e[b, h, s, t] = exp(x[b, h, s, t] - m[b, h, s])
  z[b, h, s] = sum(t) e[b, h, s, t]
  y[b, h, s, v] = sum(t) (e[b, h, s, t] / z[b, h, s]) * value[b, h, t, v]
  torch: F.scaled_dot_product_attention(q, key, value, is_causal=True)
"""
EXTERN = """extern op odd(x: [b.., c]) -> i: int<c>[b.., c]
  axes: b..
  torch: {native}
  numpy: np.lexsort([x])
"""

WRONG_OPERATORS = {
    "E114": {
        "something_else": one("torch.relu(x)", "x[b..] * 2"),
        "only_below_zero": one("torch.abs(x)", "relu(x[b..])"),
        "slope_at_a_tie": one("torch.relu(x)", "maximum(x[b..], 0)"),
        "slope_at_both_ties": one("F.hardtanh(x, 0, 6)", "minimum(relu(x[b..]), 6)"),
        "beyond_twenty": one("F.softplus(x)", "softplus(x[b..])"),
        "beyond_twenty_of_beta": one("F.softplus(x, 2)", "log(1 + exp(2 * x[b..])) / 2"),
        "size_one_only": one("torch.reshape(torch.mean(x), [1])", "x[b..]").replace("b..", "b"),
        "slope_missing": one("torch.square(torch.detach(x))", "x[b..] * x[b..]"),
        "slope_of_one_factor": one("torch.mul(x, torch.detach(x))", "x[b..] * x[b..]"),
        "approximation": one('F.gelu(x, approximate="tanh")', "x[b..] * (1 + erf(x[b..] * 0.7071067811865476)) / 2"),
        "attribute_ignored": one(
            "F.elu(x)", "select(x[b..] > 0, x[b..], alpha * (exp(minimum(x[b..], 0)) - 1))", "; alpha = 1"
        ),
        "attribute_only_beyond_its_default": one(
            "torch.clamp(x, -1, limit)",
            "select(x[b..] > limit, limit, select(x[b..] < -limit, -limit, x[b..]))",
            "; limit = 1",
        ),
        "bound_from_one_side": one(
            "torch.clamp(x, -1000, 999)", "select(x[b..] > 1000, 1000, select(x[b..] < -1000, -1000, x[b..]))"
        ),
        "slope_by_default_of_leaky_relu": one("F.leaky_relu(x)", "select(x[b..] > 0, x[b..], x[b..] / 10)"),
        "rounded": one("torch.floor(x)", "x[b..]"),
        "sign_of_zero_divided": one("torch.div(torch.abs(x), x)", "select(x[b..] > 0, 1, -1)"),
        "nan_where_it_is_defined": one("torch.mul(torch.sqrt(x), torch.sqrt(x))", "x[b..]"),
        "infinite_where_it_is_not": one("torch.log(torch.exp(x))", "x[b..]"),
        "only_in_float32": one("torch.sub(torch.add(x, 1000000000), 1000000000)", "x[b..]").replace("[b..]", "[b..]"),
        "swapped_operands": "op odd(x: [b..], y: [b..]) -> z: [b..]\n  z[b..] = x[b..] - y[b..]\n  torch: torch.sub(y, x)\n",
        "tie_of_two": "op odd(x: [b..], y: [b..]) -> z: [b..]\n  z[b..] = select(x[b..] >= y[b..], x[b..], y[b..])\n  torch: torch.maximum(x, y)\n",
        "floor_or_truncate": 'op odd(x: [b..], y: [b..]) -> z: [b..]\n  z[b..] = x[b..] // y[b..]\n  torch: torch.div(x, y, rounding_mode="trunc")\n',
        "broadcast": "op odd(x: [b..~], y: [b..~]) -> z: [b..]\n  z[b..] = x[b..] * y[b..]\n  torch: torch.mul(x, torch.sum(y))\n",
        "transposed_weight": "op odd(x: [b, i], w: [i, i]) -> y: [b, i]\n  y[b, o] = sum(i) x[b, i] * w[o, i]\n  torch: torch.matmul(x, w)\n",
        "last_two_of_three": "op odd(x: [b.., s, t]) -> y: [b.., t, s]\n  y[b.., j, i] = x[b.., i, j]\n  torch: torch.reshape(x, [1, 1])\n".replace(
            "torch.reshape(x, [1, 1])", "torch.unsqueeze(x, 0)"
        ),
        "reshaped_and_not_transposed": "op odd(x: [s, t]) -> y: [t, s]\n  y[j, i] = x[i, j]\n  torch: torch.reshape(x, [|t|, |s|])\n",
        "softmax_over_the_first": "op odd(x: [b.., c]) -> y: [b.., c]\n  e[b.., c] = exp(x[b.., c])\n  z[b..] = sum(c) e[b.., c]\n  y[b.., c] = e[b.., c] / z[b..]\n  torch: torch.softmax(x, 0)\n",
        "mean_over_everything": "op odd(x: [b.., c]) -> y: [b..]\n  y[b..] = sum(c) x[b.., c] / |c|\n  torch: torch.mean(x)\n",
        "sum_is_no_mean": LOSS.format(mean="", reduction=""),
        "mean_is_no_sum": LOSS.format(mean=" / |n..|", reduction=', reduction="sum"'),
        "no_reduction": LOSS.format(mean=" / |n..|", reduction=', reduction="none"'),
        "mean_over_another_axis": "op odd(x: [a, b]) -> y: [a]\n  y[a] = sum(b) x[a, b] / |b|\n  torch: torch.mean(x, 0)\n",
        "eps_outside_of_the_root": NORM.format(count="|c|", scaled="/ (sqrt(v[b..]) + eps)"),
        "unbiased_variance": NORM.format(count="maximum(|c| - 1, 1)", scaled="* rsqrt(v[b..] + eps)"),
        "eps_of_its_own": NORM.format(count="|c|", scaled="* rsqrt(v[b..] + eps)").replace("eps=eps", "eps=1e-6"),
        "running_variance_biased": BATCH_NORM.format(unbiased="", gain=" * gain[c]"),
        "only_outside_training": BATCH_NORM.format(unbiased=" * |n| / maximum(|n| - 1, 1)", gain=""),
        "padding_that_counts": POOL.format(
            value=f"max(r, s; ties = first) {WINDOW.format(outside=0)}", native="F.max_pool2d(x, size, stride, pad)"
        ),
        "ties_share": POOL.format(
            value=f"max(r, s) {WINDOW.format(outside='-inf')}", native="F.max_pool2d(x, size, stride, pad)"
        ),
        "padding_not_counted": POOL.format(
            value=f"sum(r, s) {WINDOW.format(outside=0)} / (|r| * |s|)",
            native="F.avg_pool2d(x, size, stride, pad, count_include_pad=False)",
        ),
        "rounded_up": POOL.format(
            value=f"sum(r, s) {WINDOW.format(outside=0)} / (|r| * |s|)",
            native="F.avg_pool2d(x, size, stride, pad, ceil_mode=True)",
        ),
        "padding_mode": 'op odd(x: [n, l]) -> y: [n, m]\n  where m == l + 2\n  y[n, i] = x[n, i - 1 else 0]\n  torch: F.pad(x, [1, 1], mode="replicate")\n',
        "stride_ignored": "op odd(x: [n, c, l], k: [o, c, r]; stride = 1) -> y: [n, o, q]\n  where q == (l - r) // stride + 1, stride >= 1\n  y[n, o, q] = sum(c, r) x[n, c, q * stride + r] * k[o, c, r]\n  torch: F.conv1d(x, k)\n",
        "kernel_turned": "op odd(x: [n, c, l], k: [o, c, r]) -> y: [n, o, q]\n  where q == l - r + 1\n  y[n, o, q] = sum(c, r) x[n, c, q + r] * k[o, c, |r| - 1 - r]\n  torch: F.conv1d(x, k)\n",
        "diagonal_not_seen": ATTENTION.format(seen="t < s + [s == 0]"),
        "causal_from_the_end": ATTENTION.format(seen="t - |t| <= s - |s|"),
        "largest_first": EXTERN.format(native="torch.argsort(x, dim=-1, descending=True, stable=True)"),
        "floats_and_no_integers": EXTERN.format(native="torch.mul(x, 0)"),
        "integers_of_another_width": "op odd(i: int<v>[n..]) -> j: int<v>[n..]\n  j[n..] = i[n..]\n  torch: torch.ne(i, 0)\n",
        "mask_the_other_way": "op odd(x: [b..], m: int<v>[b..]) -> y: [b..]\n  y[b..] = select(m[b..] != 0, x[b..], 0)\n  torch: torch.masked_fill(x, torch.ne(m, 0), 0)\n",
        "masked_by_a_number": "op odd(x: [b..], m: int<v>[b..]) -> y: [b..]\n  y[b..] = select(m[b..] == 1, x[b..], 0)\n  torch: torch.mul(x, torch.ne(m, 0))\n",
        "no_sizes": one("torch.relu(x)", "relu(x[b..])")
        .replace("[b..]", "[b]")
        .replace("  y[b]", "  where b == 999983\n  y[b]", 1),
        "two_results_swapped": "op odd(x: [b..]) -> y: [b..], z: [b..]\n  y[b..] = exp(x[b..])\n  z[b..] = x[b..]\n  torch:\n    y = torch.mul(x, 1)\n    z = torch.exp(x)\n",
        "cross_entropy_that_leaves_out": "op odd(x: [n, c], t: int<c>[n]) -> y: []\n  z[n] = sum(c) exp(x[n, c])\n  p[n] = sum(c) [c == t[n]] * x[n, c]\n  y[] = sum(n) (log(z[n]) - p[n]) / |n|\n  torch: F.cross_entropy(x, t, ignore_index=0)\n",
    },
    "E116": {
        "too_few_operands": one("torch.mul(x)", "x[b..]"),
        "too_many_operands": one("torch.relu(x, 1, 2)", "relu(x[b..])"),
        "unknown_keyword": one("F.leaky_relu(x, slope=0.1)", "x[b..]"),
        "number_for_a_tensor": one("torch.relu(1)", "relu(x[b..])"),
        "a_fraction_where_a_count_stands": one("torch.cumsum(x, 0.5)", "x[b..]"),
        "string_of_another_function": one('F.leaky_relu(x, "mean")', "x[b..]"),
        "axis_out_of_range": "op odd(x: [b, c]) -> y: [b, c]\n  y[b, c] = x[b, c]\n  torch: torch.flip(x, [2])\n",
        "axis_out_of_range_at_some_ranks": "op odd(x: [b.., c]) -> y: [b.., c]\n  y[b.., c] = x[b.., c]\n  torch: torch.narrow(x, 1, 0, |c|)\n",
        "shapes_that_do_not_fit": "op odd(x: [b, i], w: [i, o]) -> y: [b, o]\n  y[b, o] = sum(i) x[b, i] * w[i, o]\n  torch: F.linear(x, w)\n",
        "in_place_by_position": one("F.leaky_relu(x, 1, True)", "x[b..]")
        .replace("1, True", "0.5, True")
        .replace("= x[b..]", "= select(x[b..] > 0, x[b..], x[b..] / 2)"),
        "numpy_of_an_extern_operator": EXTERN.format(native="torch.argsort(x, dim=-1, stable=True)").replace(
            "np.lexsort([x])", "np.flip(np.lexsort([x]), order=3)"
        ),
        "integers_where_floats_stand": "op odd(i: int<v>[n..]) -> y: [n..]\n  y[n..] = i[n..]\n  torch: F.one_hot(i, 2, 3)\n",
    },
}

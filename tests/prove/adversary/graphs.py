"""Rules over graphs of declared operators, by kind: device axes renamed and swapped, views, slices, ids.

A template has choices in braces, `{p|q}`. Equal texts make the same choice; a mark at the end, `{p|q}'`, makes the text
another choice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random

UNARY = (
    "relu|exp|tanh|spike|neg|log|sqrt|square|causal_mask|far_mask|running|backwards|placed|softmax|share|2 *|sigmoid"
)

GRAPHS: Mapping[str, Sequence[str]] = {
    "devices": (
        "(x: [p * m, k]) => combine[{p|q}; {D}](partition[{p|p|q}; {D}'](x)) => x",
        "(x: [p * m, q * k]){ where p == q|} => combine[{p|q}; dim=0]({F}(partition[{p|q}; dim=0](x))) => {F}(x)",
        "(x: [p * q * m, k]){ where p == q|| where p == 2} => combine[{p|q}; dim=0](combine[{p|q}'; dim=0]("
        "partition[{p|q}''; dim=0](partition[{p|q}'''; dim=0](x)))) => x",
        "(x: [p * m, q * k]){ where p == q|} => partition[q; dim=1](partition[p; dim=0](x)) => "
        "partition[{p|q}; dim={0|1}](partition[{p|q}'; dim={0|1}'](x))",
        "(x: [@p, @q, m]){ where p == q|| where p == 1} => reduce[p](reduce[q](x)) => reduce[{p|q}](reduce[{p|q}'](x))",
        "(x: [@p, @q, m]){ where p == q|| where p == 1} => {unreplicate|reduce|combine}[p{;|; dim=0}](reduce[q](x)) => "
        "{unreplicate|reduce|combine}'[{p|q}{;|; dim=0}](reduce[{p|q}'](x))",
        "(x: [@p, m, k], y: [@p, m, k]) => reduce[p](x {+|-|*} y) => reduce[p](x) {+|-|*} reduce[p](y)",
        "(x: [@p, m, k], y: [k, o]) => matmul(reduce[p](x), y) => reduce[p]({F}(matmul(x, replicate[p](y))))",
        "(x: [@p, m, k]) => {F}(reduce[p](x)) => reduce[p]({F}(x))",
        "(x: [@p, m, k]) => {F}(unreplicate[p](x)) => unreplicate[p]({F}(x))",
        "(x: [@p, m, k]) => {F}(combine[p; {D}](x)) => combine[p; {D}]({F}(x))",
        "(x: [p * m, k]) => {F}(partition[p; {D}](x)) => partition[p; {D}]({F}(x))",
        "(x: [m, k]) => {F}(replicate[p](x)) => replicate[p]({F}(x))",
        "(x: [m, k]) => reduce[p]({mask|replicate}[p](x)) => x",
        "(x: [@p, m, k]) => reduce[p](pad[p; {D}](x)) => combine[p; {D}'](x)",
        "(x: [p * m, p * k]) => all_to_all[p; from=0, to=1](partition[p; dim=0](x)) => partition[p; dim={0|1}](x)",
        "(x: [p * m, q * k]){ where p == q|} => all_to_all[{p|q}; from={0|1}, to=1](partition[p; dim=0](x)) => "
        "partition[{p|q}'; dim=1](x)",
        "(x: [p * m, k]) => undeal[p; dim=0]({F}({deal|partition}[p; dim=0](x))) => {F}(x)",
        "(x: [p * m, k]) => combine[p; dim=0]({F}(deal[p; dim=0](x))) => {F}(x)",
        "(x: [p * m, k], y: [p * m, k]) => reduce[p](running(partition[p; dim=0](x) * deal[p; dim=0](y))) => "
        "reduce[p](running(partition[p; dim=0](x * y)))",
        "(x: [m, p * k], w: [o, p * k]) => linear(x, w) => "
        "reduce[p](linear({partition|deal}[p; dim=1](x), {partition|deal}'[p; dim=1](w)))",
        "(x: [m, p * k], w: [p * o, p * k]) => linear(x, w) => "
        "combine[p; dim={0|1|1}](linear({replicate[p](x)|partition[p; dim=0](x)}, partition[p; dim={0|0|1}](w)))",
        "(x: [p * m], y: [q * m]) where p == q => partition[p; dim=0](x), partition[q; dim=0](y) => "
        "partition[{p|q}; dim=0](x), partition[{p|q}'; dim=0](y)",
        "(x: [m, k]) => own_slice[p; dim=0](replicate[p](x)) => partition[p; dim={0|1}](x)",
        "(x: [p * m]) => halo[p; dim=0, before={0|1}, after=0](x) => partition[p; dim=0](x)",
    ),
    "graphs": (
        "(x: [s + {1|20|64|70}, t]) => {F}(slice(x; dim=0, start=s, stop=s + 1)) => "
        "slice({F}(x); dim=0, start=s, stop=s + 1)",
        "(x: [s, t + {1|20|64|70}]) => {F}(slice(x; dim=1, start=t, stop=t + 1)) => "
        "slice({F}(x); dim=1, start=t, stop=t + 1)",
        "(x: [m, k], y: [l, k]) => {F}(concat(x, y; dim=0)) => concat({F}(x), {F}(y); dim=0)",
        "(x: [k, m], y: [k, l]) => {F}(concat(x, y; dim=1)) => concat({F}(x), {F}(y); dim=1)",
        "(x: [k, m], y: [k, l]) => {G}(concat({F}(x), y; dim=1)) => {maximum|+|*}({G}({F}(x)), {G}(y))",
        "(x: [m, k]) => {F}({H}(x)) => {H}({F}(x))",
        "(x: [m, k]) => {F}({H}(x)) => {F}(x)",
        "(x: [m, k]) => {F}({F}(x)) => {F}(x)",
        "(x: [m, k]) => {F}(x[i, j] -> [j, i]) => {F}(x)[i, j] -> [j, i]",
        "(x: [a * b, c]) => {F}(x[(i j), k] -> [i, j, k]) => {F}(x)[(i j), k] -> [{i, j|j, i}, k]",
        "(x: [a * b]){ where a == b|} => x[(i j)] -> [i, j] => x[(i j)] -> [{i, j|j, i}]",
        "(x: [a * b]){ where a == b|| where a == 1} => {F}(x[(i j)] -> [(j i)])[(j i)] -> [(i j)] => {F}(x)",
        "(x: [m, k], y: [m, k]) => {F}(x) - {F}(x) + y => y",
        "(x: [m, k], y: [m, k]) => larger(x, y) => larger({H}(x), {H}(y))",
        "(x: [m, k], y: [m, k]) => larger({H}(x) + x, {H}(x) + y) => larger(x, y)",
        "(x: [m, k], y: [m, k]) => y * ({F}(x) - {F}(x)) => 0 * y",
        "(x: [m, k], y: [m, k]) => {F}(x) * y / y => {F}(x)",
        "(x: [m, k], y: [m, k]) => (x + y) / {F}(x) => x / {F}(x) + y / {F}(x)",
        "(x: [m, k]) => {G}({F}(x)) => {G}({F}(backwards(x)))",
        "(x: [m, k]) => {G}(x) => {G}({H}(x))",
        "(x: [m, k]) => {best|reduce_max}({relu|exp|neg|square}(x)[a, b] -> [{a|a, b}]) => "
        "{relu|exp|neg|square}'({best|reduce_max}'(x[a, b] -> [{a|a, b}]))",
        "(x: [m, k], y: [k, l]) => matmul({F}(x), y) => {F}(matmul(x, y))",
        "(x: [m, k]) => scale({F}(x); factor={0|1 / 3|2|0.1|-1}) => "
        "{F}(scale(x; factor={0|1 / 3|0.3333333333333333|2|0.1|-1}'))",
        "(x: [m, k]) => shift(shift({F}(x); by={1|100000000000000000}); by=-{1|100000000000000000}) => {F}(x)",
        "(x: [m, k]) => clamp({F}(x); lo=0, hi={6|100|1000}) => relu({F}(x))",
        "(x: [m, k]) => minimum(relu({F}(x)), {F}(x)) => {F}(x)",
        "(x: [m, k]) => share({far_mask|causal_mask|H}(x)) => {softmax|share}({far_mask|causal_mask|H}'(x))",
        "(x: [m, k]) => exp(log_softmax({H}(x))) => softmax({H}(x))",
        "(x: [m, k]) => softmax({H}(x) + {1|x}) => softmax({H}(x))",
    ),
    "sizes": (
        "(x: [c, k]) => {R}(scale(x; factor={E})) => scale({R}(x); factor={E})",
        "(x: [c, k]) => {R}(scale(exp(x); factor={E})) => scale(exp(x); factor={E})",
        "(x: [c, k], y: [c, k]) => {maximum|minimum}(scale(x; factor={E}), scale(y; factor={E})) => "
        "scale({maximum|minimum}(x, y); factor={E})",
        "(x: [c, k]) => {G}(scale(x; factor={E})) => scale({G}(x); factor={E})",
        "(x: [c, k]) => {softmax|log_softmax}(shift(x; by={E})) => {softmax|log_softmax}(x)",
        "(x: [c, k]) => shift({R}(x); by={E}) => {R}(shift(x; by={E}))",
        "(x: [c, k]) => scale(scale(x; factor={E}); factor=1 / 3) => scale(scale(x; factor=1 / 3); factor={E})",
        "(x: [c, k]) => sqrt(scale(square(x); factor={E})) => scale(abs(x); factor={E})",
        "(x: [c, k]) => relu(shift(relu(x); by={E})) => shift(relu(x); by={E})",
        "(x: [c, k]){| where c >= 2| where c >= 3} => concat(slice(x; dim=0, start=0, stop=c // {2|3}), "
        "slice(x; dim=0, start=c // {2|3}, stop=c); dim=0) => x",
        "(x: [c, k]){| where c >= 4} => {F}(slice(x; dim=0, start=c // {2|3|4}, stop=c)) => "
        "slice({F}(x); dim=0, start=c // {2|3|4}, stop=c)",
        "(x: [c]){| where c % 2 == 0| where c % 3 == 0} => slice(x; dim=0, start=0, stop=c // {2|3} * {2|3}) => x",
        "(x: [a * (4 + ({100|50|8} - c) // {200|60|3})], y: [c]) => y, placed(x)[(i j)] -> [i, j] => "
        "y, {relu|abs|neg|}(placed(x)[(i j)] -> [i, j])",
        "(x: [a * ({2 + c // 3|4 + (60 - c) // 90}), k], y: [c]) => y, {F}(x[(i j), k] -> [i, j, k]) => "
        "y, {F}(x)[(i j), k] -> [i, j, k]",
        "(x: [c, k]) => backwards(slice(x; dim=1, start=0, stop=k)) => backwards(x)",
        "(x: [c + {1|64}, k]) => {F}(slice(x; dim=0, start={0|1}, stop=c + {0|1})) => "
        "slice({F}(x); dim=0, start={0|1}, stop=c + {0|1})",
    ),
    "numbers": (
        "(x: [m, k]){Z} => {R}(scale(x; factor={C})) => scale({R}(x); factor={C|C'})",
        "(x: [m, k]){Z} => {R}(scale(exp(x); factor={C})) => scale(exp(x); factor={C})",
        "(x: [m, k], y: [m, k]){Z} => {maximum|minimum}(scale(x; factor={C}), scale(y; factor={C})) => "
        "scale({maximum|minimum}'(x, y); factor={C})",
        "(x: [m, k]){Z} => {G}(scale({F|far_mask|causal_mask|}(x); factor={C})) => "
        "scale({G}({F|far_mask|causal_mask|}(x)); factor={C})",
        "(x: [m, k]){Z} => scale(scale({F}(x); factor=c); factor={C}) => scale({F}(x); factor={c * c|1|c|c / c|0})",
        "(x: [m, k]){Z} => scale(scale({H}(x); factor=c); factor=d) => scale({H}(x); factor={c * d|d * c|c + d|c / d})",
        "(x: [m, k]){Z} => scale({H}(x); factor=c) => scale(scale({H}(x); factor=c * {C}); factor=1 / {C})",
        "(x: [m, k]){Z} => scale({H}(x); factor=c) - scale({H}(x); factor=c) => {0 * |}x",
        "(x: [m, k]){Z} => shift(shift({F}(x); by=c); by={-c|d|C}) => {F}(x)",
        "(x: [m, k]){Z} => shift({F}(x); by=c) => {F}(shift(x; by={C}))",
        "(x: [m, k]){Z} => {softmax|share|G}(scale(shift({H}(x); by=c); factor={C})) => {softmax|share|G}({H}(x))",
        "(x: [m, k]){Z} => leaky_relu(x; slope=c) => {maximum|minimum}(x, scale(x; factor={C}))",
        "(x: [m, k]){Z} => leaky_relu(leaky_relu(x; slope=c); slope={C}) => leaky_relu(x; slope={c * c|c|1})",
        "(x: [m, k]){Z} => leaky_relu(scale(x; factor=c); slope=d) => scale(leaky_relu(x; slope=d); factor=c)",
        "(x: [m, k]){Z} => clamp(scale(x; factor=c); lo=-1, hi=1) => scale(clamp(x; lo=-1 / c, hi=1 / c); factor=c)",
        "(x: [m, k]){Z} => clamp(x; lo=c, hi={d|c + 1|c}) => {maximum|minimum}(shift(0 * x; by=c), "
        "{maximum|minimum}'(x, shift(0 * x; by={d|c + 1|c})))",
        "(x: [m, k]){Z} => sqrt(scale(square(x); factor=c * c)) => scale(abs(x); factor={C})",
        "(x: [m, k], y: [k, l]){Z} => matmul(scale({F}(x); factor=c), y) => scale(matmul({F}(x), y); factor={C})",
        "(x: [m, k]){Z} => scale({F}(x); factor=c) / {F|}(x) => shift(0 * x; by=c)",
        "(x: [m, k]){Z} => elu(x; alpha=c) => {elu(x; alpha=1)|maximum(elu(x; alpha=c), x)|leaky_relu(x; slope=c)}",
        "(x: [m, k]){Z} => dropout(scale(x; factor=c); p=d) => scale(dropout(x; p=d); factor={C})",
        "(x: [m, k], g: [k]){Z} => rms_norm(scale(x; factor=c), g; eps=c * c) => {rms_norm|0 * rms_norm}(x, g; eps=1)",
    ),
    "gathers": (
        "(i: int<v>[n], j: int<v>[k], w: [v, d]) => embedding(concat(i, j; dim=0), w) => "
        "concat(embedding(i, w), embedding(j, w); dim=0)",
        "(i: int<v>[n], w: [v, d]) => {F}(embedding(i, w)) => embedding(i, {F}(w))",
        "(i: int<v>[n], w: [v, d], y: [v, d]) => embedding(i, w {+|*|-} y) => embedding(i, w) {+|*|-} embedding(i, y)",
        "(i: int<v>[n], w: [v, d], u: [d, e]) => matmul(embedding(i, w), u) => embedding(i, matmul(w, u))",
        "(i: int<v>[n, l], w: [v, d]) => embedding_bag(i, {F}(w)) => {F}(embedding_bag(i, w))",
        "(i: int<v>[n, l], w: [v, d], y: [v, d]) => embedding_bag(i, w + y) => "
        "embedding_bag(i, w) + embedding_bag(i, y)",
        "(x: [v], i: int<v>[n], y: [n]) => scatter_add(x, i, y; dim=0) => x + scatter_add(0 * x, i, y; dim=0)",
        "(x: [v], i: int<v>[n], y: [n]) => gather(scatter_add(0 * x, i, y; dim=0), i; dim=0) => y",
        "(x: [v], i: int<v>[n], y: [n], z: [n]) => scatter_add(scatter_add(x, i, y; dim=0), i, z; dim=0) => "
        "scatter_add(x, i, y {+|*} z; dim=0)",
        "(x: [v], i: int<v>[n], y: [n]) => {F}(gather(x, i; dim=0)) * y => gather({F}(x), i; dim=0) * y",
        "(x: [v], i: int<v>[n], y: [n]) => scatter_add(x, i, {F}(y); dim=0) => {F}(scatter_add(x, i, y; dim=0))",
        "(i: int<v>[n], w: [v, d]) => matmul(one_hot(i), {F}(w)) => embedding(i, {F}(w))",
        "(i: int<v>[n], w: [v, d]) => embedding(i, {F}(w)) => matmul(one_hot(i), {F}(w))",
        "(i: int<v>[n], w: [v, d]) => reduce_sum(embedding(i, w)[a, b] -> [b]) => reduce_sum(w[a, b] -> [b])",
        "(x: [n, c], t: int<c>[n]) => cross_entropy({H}(x), t) => cross_entropy(x, t)",
        "(x: [n, c], t: int<c>[n]) => cross_entropy(log_softmax({H}(x)), t) => cross_entropy({H}(x), t)",
        "(i: int<v>[n], j: int<v>[n], w: [v, d]) => embedding(i, w) {+|*} embedding(j, w) => "
        "embedding(j, w) {+|*} embedding(i, w)",
    ),
}
OWN = {
    "F": UNARY,
    "H": "causal_mask|far_mask|spike|log|sqrt|exp|relu|neg|reciprocal",
    "G": "best|rowmax|sum_rows",
    "R": "relu|abs|softplus|tanh|neg|spike",
    "E": "c|c - 1|c - 2|60 - c|c // 3|c // 3 - 1|(50 - c) // 60|(50 - c) // 60 + 1|c % 3|c % 3 - 1|c * c - c"
    "|c * c - 2 * c|(c + 1) // c|c // (c + 1)|(c - 100) // 7|(2 * c - 1) // c|1 - c // 65",
    "D": "dim=0|dim=1",
    "C": "c|c|c|-c|c * c|1 / c|c - 1|2 * c|c / 3",
    "Z": "| where c >= 0| where c > 0| where c != 0| where c <= 0| where c < 0| where c <= 1| where c >= 0.5"
    "| where c > 1, c < 3| where 2 * c == 1| where c == 0| where c * c >= 1",
}
_CHOICE = re.compile(r"\{([^{}]*)\}('*)")


def graph_rule(kind: str, name: str, random: Random) -> str:
    """The text of a rule drawn from the templates of a kind."""
    template = random.choice(GRAPHS[kind])
    made: dict[str, str] = {}

    def choose(match: re.Match[str]) -> str:
        if match[0] not in made:
            made[match[0]] = random.choice(OWN.get(match[1], match[1]).split("|"))
        return OWN[made[match[0]]].split("|")[0] if made[match[0]] in OWN else made[match[0]]

    header, left, right = _CHOICE.sub(choose, template).split(" => ")
    inputs, _, where = header.partition(" where ")
    if random.random() < 0.3 and "p" not in where:
        left, right = right, left
    condition = f"  where {where}\n" if where else ""
    return f"rule {name}{inputs}\n{condition}  {_shaped(left)} => {_shaped(right)}\n"


def _shaped(side: str) -> str:
    """Rewrites `2 *(x)` and `+(x, y)` into the syntax of rules."""
    side = side.replace("2 *(", "2 * (")
    return re.sub(r"(?<![\w)]) ?([+*])\(", lambda match: {"+": "add(", "*": "mul("}[match[1]], side)

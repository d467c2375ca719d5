"""Texts that contain every form of the three languages."""

OPS = """\
## Affine map over the last axis.
op linear(x: [b.., i], w: [o, i]) -> y: [b.., o]
  y[b.., o] = sum(i) x[b.., i] * w[o, i]
  torch: F.linear(x, w)

op softmax(x: [b.., c]) -> y: [b.., c]
  m[b..]    = max(c) x[b.., c]
  e[b.., c] = exp(x[b.., c] - m[b..])
  z[b..]    = sum(c) e[b.., c]
  y[b.., c] = e[b.., c] / z[b..]

op concat(x: [f.., d, g..], y: [f.., e, g..]; dim) -> z: [f.., s, g..]
  where rank(f) == dim, s == d + e
  z[f.., i, g..] = x[f.., i, g.. else 0] + y[f.., i - |d|, g.. else 0]
  torch: torch.cat([x, y], dim)

op dropout(x: [b..]; p = 0.1) -> y: [b..]
  y[b..] = [uniform[b..] >= p] * x[b..] / (1 - p)
  eval
    y[b..] = x[b..]

op embedding(ids: int<v>[n..], w: [v, d]) -> y: [n.., d]
  y[n.., d] = sum(v) [v == ids[n..]] * w[v, d]          # a guard

op conv2d(x: [n, c, h, w], k: [o, c, r, s]; stride = 1, pad = 0) -> y: [n, o, p, q] where q == w + 2*pad
  where p == (h + 2*pad - r) // stride + 1, s == 1
  y[n, o, p, q] = sum(c, r, s) x[n, c, p*stride + r - pad, q*stride + s - pad else 0] * k[o, c, r, s]

op grouped(x: [n, (g i)], k: [(g o), i]; groups = 1) -> y: [n, (g o)]
  where g == groups
  y[n, g, o] = sum(i) x[n, g, i] * k[g, o, i]

op add(x: [b..~], y: [b..~]) -> z: [b..]
  z[b..] = x[b..] + y[b..]

op mse(x: [b..], y: [b..]) -> z: []
  z[] = (sum(b..) (x[b..] - y[b..]) * (x[b..] - y[b..])) / |b..|

op layer_norm(x: [b.., c]; eps = 1e-5) -> y: [b.., c]
  m[b..] = (sum(c) x[b.., c]) / |c|
  v[b..] = (sum(c) (x[b.., c] - m[b..]) * (x[b.., c] - m[b..])) / |c|
  y[b.., c] = (x[b.., c] - m[b..]) * rsqrt(v[b..] + eps)
  torch: F.layer_norm(x, [|c|], eps=eps)

op mask(x: [b.., s, t]) -> y: [b.., s, t]
  y[b.., s, t] = select(t <= s, x[b.., s, t], -inf)

extern op best(x: [b.., c]; count = 1) -> i: int<c>[b.., k] where k == count
  where k <= c
  axes: b..
  torch: torch.narrow(torch.argsort(x, descending=True), -1, 0, |k|)
  numpy: np.take(np.lexsort([np.negative(x)]), [0], -1)

fn relu(x) = maximum(x, 0)
  derivative x: [x > 0]
  torch: torch.relu(x)

fn exp(x)
  derivative x: exp(x)
  torch: torch.exp(x)
  numpy: np.exp(x)

parallel partition[p; dim](x: [f.., d, g..]) -> y: [@p, f.., e, g..]
  where rank(f) == dim, d == p * e
  y[@p, f.., j, g..] = x[f.., @p * |e| + j, g..]

parallel reduce[p](x: [@p, g..]) -> y: [g..]
  y[g..] = sum(@p) x[@p, g..]

parallel unreplicate[p](x: [@p, g..]) -> y: [g..]
  y[g..] = x[0, g..]
"""

MODEL = """\
block ffn[hidden](x)
  weight w: f32[hidden, d] ~ normal(0.02)
  weight w2: f32[d, hidden] ~ normal(0.02)
  return linear(relu(linear(x, w)), w2)

## Two-layer perceptron.
## With a doc of two lines.
model mlp[b = 64, d = 1024, h = 4 * d, heads = 4, classes = 10]
  preset small: b = 8, d = 32, classes = 4
  precision bf16
  input x: f32[b, d]
  input target: int<classes>[b]
  weight w1: f32[h, d] ~ normal(0.02)
  weight b1: f32[h] ~ zeros
  buffer mask: f32[d, d // heads] ~ constant(-1e-5)
  h1 = relu(linear(x, w1) + b1)
  f = ffn[hidden = h](h1)               # block call
  q = h1[b, (n=heads k)] -> [n, b, k]
  m = reduce_mean(x[b, d] -> [b])
  s = linear(x, w1)[b, (3 n=h // 3)] -> [3, b, n] * -0.5
  a, c = split(x; dim=1, parts=2)
  repeat 24 as layer
    weight w: f32[d, d] ~ uniform(-0.1, 0.1)

    x = x + linear(x, w)
    repeat 2 as inner
      # a comment
      x = -(x - 1) / 2

  loss cross_entropy(logits, target)
  output logits
  output softmax(logits) as probabilities
"""

RULES = """\
## Two rules in one file.
rule every_form(x: [b.., p * m, 2], ids: int<v>[@q, n]) where v >= 2
  where m == 2 * k, n <= v, k != (m - 1) // 3 % 2
  part = partition[p; dim=-1](x)
  h = relu(part) * 0.5 - -x / 4 + (part - 2)   # a local name
  h, gather[q](ids)
  => x[a, (b 1)] -> [1, b, a], (f(h, x; eps=1e-5, start=k + 1))[a] -> []

rule linear_by_inputs(x: [b, p * i], w: [o, p * i])
  linear(x, w) => reduce[p](linear(partition[p; dim=1](x), partition[p; dim=1](w)))
"""

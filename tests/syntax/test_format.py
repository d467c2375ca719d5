"""The formatter: one layout, every comment kept. Laws over random texts are in test_random."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.syntax.samples import MODEL, OPS, RULES
from unity_dsl.resources import folder
from unity_dsl.syntax.diagnostic import InputError
from unity_dsl.syntax.format import format_model, format_ops, format_rules
from unity_dsl.syntax.parse_model import parse_model
from unity_dsl.syntax.parse_ops import parse_ops
from unity_dsl.syntax.parse_rules import parse_rules
from unity_dsl.syntax.read import read_source
from unity_dsl.syntax.span import Source

CASES = Path(__file__).parents[1] / "cases"
RULE_FILES = [
    *(CASES / "proved").glob("*.rules"),
    *(CASES / "refuted").glob("*.rules"),
    *folder("rules").glob("*.rules"),
]
SHIPPED = sorted([*folder("ops").glob("*.uop"), *folder("examples").glob("*.udl"), *RULE_FILES])
FORMATTERS = {".uop": format_ops, ".udl": format_model, ".rules": format_rules}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_files_are_formatted(path: Path) -> None:
    source = read_source(path)
    assert FORMATTERS[path.suffix](source) == source.text


def check_laws(text: str, neat: str) -> None:
    """Both texts mean the same, and formatting gives the neat text, also from the neat text."""
    formatter, parser = (format_model, parse_model) if "model " in text else (format_ops, parse_ops)
    if "rule " in text:
        formatter, parser = format_rules, parse_rules
    assert formatter(Source("f", text)) == neat
    assert formatter(Source("f", neat)) == neat
    assert parser(Source("f", neat)) == parser(Source("f", text))  # type: ignore[operator]


@pytest.mark.parametrize(("text", "formatter"), [(OPS, format_ops), (MODEL, format_model), (RULES, format_rules)])
def test_samples_keep_their_meaning(text: str, formatter: Callable[[Source], str]) -> None:
    check_laws(text, formatter(Source("f", text)))


MESSY_OP = """\


#file
##  doc
op   f( x:[ b.. ,i ] ,ids:int< v >[n..]; p=0.1,k = - 2)->y :[@ p,b..~]where i==3 ,j!=- 1
      where k<2


      # body

      y [@p , b..]=sum( i,b.. )-x[ b..,- i else-1 ]*|  b..  |-( - 3 ) # one
      z[]=[ i>=0 ]*select( i<3,exp ( x[] ),-inf ) #   two


      # before the call
      torch :F.f( x,[| i |,- 1],dim= 1 , p = p)
      eval
         y[]=uniform[ b.. ]
      # end of f
    # still of f
## doc g
fn g(x)=maximum( x,0 )
fn h(x)
 torch:torch.h(x)
# the end
"""

NEAT_OP = """\
#file
##  doc
op f(x: [b.., i], ids: int<v>[n..]; p = 0.1, k = -2) -> y: [@p, b..~] where i == 3, j != -1
  where k < 2

  # body

  y[@p, b..] = sum(i, b..) -x[b.., -i else -1] * |b..| - (-3)  # one
  z[] = [i >= 0] * select(i < 3, exp(x[]), -inf)               #   two

  # before the call
  torch: F.f(x, [|i|, -1], dim=1, p=p)
  eval
    y[] = uniform[b..]
  # end of f

# still of f
## doc g
fn g(x) = maximum(x, 0)
fn h(x)
  torch: torch.h(x)

# the end
"""

MESSY_MODEL = """\
model   m[ b=64,d = 4 *b ]
  # inputs
  preset small:b=8,d=-( 2 )
  input ids:int<classes+1>[b ,s]# ids
  input mask :f32[]

  weight w:f32[d// 2]~normal( 0.02 )
  x=a -b*- c/( d )
  y = split( x ;dim=- 1,parts = 2 )
  z=ffn [ h=2*b ]( x )[ b,( n = heads k 3 ) ]->[ 1,b ]
  p,q=f(a,   # first
   b  # second
     # third
  )
  repeat 2*n as l
          x=x


  loss x # loss
  output f(x)as y
"""

NEAT_MODEL = """\
model m[b = 64, d = 4 * b]
  # inputs
  preset small: b = 8, d = -(2)
  input ids: int<classes + 1>[b, s]  # ids
  input mask: f32[]

  weight w: f32[d // 2] ~ normal(0.02)
  x = a - b * -c / (d)
  y = split(x; dim=-1, parts=2)
  z = ffn[h=2 * b](x)[b, (n=heads k 3)] -> [1, b]
  p, q = f(a,  # first
      b        # second
      # third
  )
  repeat 2 * n as l
    x = x

  loss x  # loss
  output f(x) as y
"""


MESSY_RULES = """\
#file
##  doc
rule   f( x:[ b.. ,p*m,- 1+ n ] ,ids:int< v >[@ q,n])where v>=2,m!=- 1
     where   n==2*( k+1 )

     # body
     h=partition[ p ;dim = - 1 ]( x )# local
     sum( h )-h*- 2,ids   #  left


     # before the arrow
     =>max ( x,  # first
      ids )[ a ,( b  1 )]->[1,b , a],( -x )[]->[ ]
     # end of f
rule g( x:[] )
  relu( x )=>x
  # still of g
"""

NEAT_RULES = """\
#file
##  doc
rule f(x: [b.., p * m, -1 + n], ids: int<v>[@q, n]) where v >= 2, m != -1
  where n == 2 * (k + 1)

  # body
  h = partition[p; dim=-1](x)  # local
  sum(h) - h * -2, ids         #  left

  # before the arrow
  => max(x,  # first
      ids)[a, (b 1)] -> [1, b, a], (-x)[] -> []
  # end of f

rule g(x: [])
  relu(x) => x
  # still of g
"""


@pytest.mark.parametrize(("messy", "neat"), [(MESSY_OP, NEAT_OP), (MESSY_MODEL, NEAT_MODEL), (MESSY_RULES, NEAT_RULES)])
def test_one_layout(messy: str, neat: str) -> None:
    check_laws(messy, neat)


def test_what_does_not_parse_is_not_formatted() -> None:
    with pytest.raises(InputError):
        format_ops(Source("f", "op f"))
    with pytest.raises(InputError):
        format_model(Source("f", "model m\n"))
    with pytest.raises(InputError):
        format_rules(Source("f", "rule f(x: [m])\n  x\n"))

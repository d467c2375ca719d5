"""Axes named by a rule's views: derived from shapes alone, they equal the ones from the sides' normal forms."""

from __future__ import annotations

import pytest

from tests.prove.cases import library
from tests.sampling import of_the_day
from unity_dsl.prove.decision.integer_arithmetic import Arithmetic
from unity_dsl.prove.normal_form.form import Unsupported
from unity_dsl.prove.refutation.numeric_run import witness_sizes
from unity_dsl.prove.translation.real_attributes import with_reals
from unity_dsl.prove.translation.rule_forms import Graph, claim_of, rest_groups, used_names, views
from unity_dsl.prove.translation.rule_results import by_results
from unity_dsl.prove.translation.symbolic_sizes import Failed
from unity_dsl.rules.shipped_rules import shipped_sources
from unity_dsl.syntax.parse_rules import RuleDecl, parse_rules

VIEWED = [rule for source in shipped_sources() for rule in parse_rules(source).rules if any(views(rule))]


@pytest.mark.parametrize("rule", of_the_day(VIEWED, 16), ids=lambda rule: rule.name)
def test_shapes_alone_tell_the_axes_of_views(rule: RuleDecl) -> None:
    rule, declared = with_reals(by_results(rule, library()), library())
    ranks, claim = dict.fromkeys(rest_groups(rule), 1), claim_of(rule)
    witness = witness_sizes(claim, used_names(rule, claim, ranks), 0)
    assert witness is not None
    graphs = [
        Graph(rule, claim, declared, ranks, witness, Arithmetic(claim.conditions), shapes=shapes)
        for shapes in (True, False)
    ]
    told = []
    for graph in graphs:
        try:
            graph.sides()
        except (Failed, Unsupported) as reason:
            told.append(type(reason))
    assert graphs[0].views == graphs[1].views
    assert len(told) in (0, 2)

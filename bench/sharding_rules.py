"""Proves sharding configurations of all operators as rules with device axes: `python bench/sharding_rules.py`.

It records the answer for each rule and the counts. `--write` writes the proved rules of the operators listed here to
rules/sharding.rules.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from time import process_time

from measure import write_results

from unity_dsl.index.declarations.loading import load_library
from unity_dsl.prove.answer import NotProved, Proved
from unity_dsl.prove.rule_proof import prove_rule
from unity_dsl.rules.sharding_rules import configuration_rules
from unity_dsl.rules.wellformed import load_rules
from unity_dsl.syntax.format import format_rules
from unity_dsl.syntax.span import Source

RULES = Path(__file__).parent.parent / "rules" / "sharding.rules"
OPERATORS = (
    *("linear", "linear_bias", "matmul", "embedding", "relu", "gelu", "exp", "add", "mul", "concat", "softmax"),
    *("layer_norm", "rms_norm", "full_attention", "cross_entropy"),
)
HEAD = """\
# Operators divided over p devices, forward: partition, replicate and reduce before and after. Each is a configuration
# of `unityc rules configurations`, read as a rule. Written by `python bench/sharding_rules.py --write`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write rules/sharding.rules")
    options = parser.parse_args()
    library = load_library()
    begun = process_time()
    answers, texts = {}, []
    for name, text in configuration_rules([library.operators[known] for known in library.operators], library):
        (rule,) = load_rules(Source(f"{name}.rules", text), library)
        answer = prove_rule(rule, library, shrink=False)
        answers[name] = (
            "proved" if isinstance(answer, Proved) else answer.reason if isinstance(answer, NotProved) else "refuted"
        )
        if isinstance(answer, Proved) and text.split("\n")[1].split("(")[0].strip() in OPERATORS:
            texts.append(text)
    others = Counter("not proved" if answer not in ("proved", "refuted") else answer for answer in answers.values())
    results = {"counts": dict(others), "cpu_seconds": round(process_time() - begun, 1), "rules": answers}
    write_results("sharding_rules", "python bench/sharding_rules.py", results)
    if options.write:
        RULES.write_text(format_rules(Source(RULES.name, "\n".join((HEAD, *texts)))))


if __name__ == "__main__":
    main()

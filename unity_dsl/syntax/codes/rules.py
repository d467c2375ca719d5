"""E5xx: `.rules` substitutions."""

from __future__ import annotations

from .code import Code

RULES: dict[str, Code] = {
    "E501": Code(
        "a tensor that only the right side reads",
        "A rule is applied where its left side is found in a graph, and that fixes which tensors its inputs are. An "
        "input that the left side does not read is fixed by nothing, so there is no tensor to take for it when the "
        "right side is built. Add it to the left side, or build it from tensors that are there.",
    ),
    "E502": Code(
        "a definition used before it is made",
        "The local names of a rule are made from top to bottom, each from the inputs and from those above it. None is "
        "made from itself: rules have no recursion.",
    ),
    "E503": Code(
        "an input or definition that nothing uses",
        "Neither side of the rule reads it. It is mostly a name that was misspelt, or a line that was forgotten.",
    ),
    "E504": Code(
        "a size or number that nothing binds",
        "The sizes of a rule are the names in its inputs' dimensions, the degrees of its parallel ops and the "
        "attributes of its left side; names in attributes such as `factor=c` are real numbers. A `where` equation "
        "makes others from these. Any other name has no value when the rule is applied. A group `b..` is any number "
        "of dimensions and has no size of its own.",
    ),
    "E505": Code(
        "a rule too large",
        "A rule is a pattern that is looked for in graphs, and a claim that is proved. It may have 512 operators, as "
        "many local names, 64 inputs, 64 conditions, and four groups `b..`: these are proved at several ranks, each "
        "with all the others.",
    ),
    "E506": Code(
        "device axes that do not fit",
        "`partition`, `replicate` and other parallel ops give a tensor a device axis, `combine`, `reduce` and their "
        "kind take one away. An operator works device by device, so all its operands have the same device axes: "
        "`linear(partition[p; dim=0](x), replicate[p](w))`.",
    ),
    "E507": Code(
        "sides that can never be equal",
        "The tensors of the right side take the places of those of the left side, one by one. Their ranks differ, or "
        "one holds integers and the other floats, whatever the sizes are.",
    ),
    "E508": Code(
        "a tensor and a number of one name",
        "A name in an attribute such as `factor=c` stands for any real number, and for the same one wherever it is "
        "written in the rule. It cannot name a tensor as well.",
    ),
    "E509": Code(
        "a signature table that says something else",
        "Substitutions are enumerated over the operators that a table lists, a toml file of themes: `[matrices]` and "
        "below it `signatures`, a list of texts, each the operands with their dimensions and what one operator makes "
        'of them, `"(x: [m, k], w: [n, k]) linear(x, w)"`. A theme may have `operators`, the most on a side, 1 to 4; '
        "`numbers`, what an attribute that is any real number may be; `special`, signatures at more special types; "
        "and `about`, a line on what it holds.",
    ),
    "E510": Code(
        "sizes at which a rule has no price",
        "`unityc rules show NAME --at m=64` prices both sides of a rule with a number for each of its sizes, at which "
        "its conditions hold. A rule for any rank (`b..`), with a real number as an attribute, or with an op that "
        "moves data between devices has no price of this kind.",
    ),
}

"""E1xx: `.uop` declarations and calls of operators."""

from __future__ import annotations

from .code import Code

OPERATORS: dict[str, Code] = {
    "E101": Code(
        "a name that is not bound",
        "In a body a bare name is an index: it stands on the left of the statement or is reduced over. The size of a "
        "dimension is written `|c|`. Attributes stand after the `;` of the declaration, degrees of a parallel op in "
        "its brackets. In a `where` condition a bare name is a size.",
    ),
    "E102": Code(
        "a tensor that is not there",
        "A statement reads the operator's inputs and what earlier statements computed, from top to bottom. A rule "
        "reads its inputs and the definitions above.",
    ),
    "E103": Code(
        "an unknown element function",
        "Functions of numbers, such as `exp` or `maximum`, are declared with `fn` in a `.uop` file. `sum`, `prod`, "
        "`max` and `min` are reductions, `sum(i) …`; the greater of two numbers is `maximum`. In a `where` condition "
        "only arithmetic, comparisons and `rank` can be used.",
    ),
    "E104": Code(
        "a wrong number of indices or arguments",
        "A tensor is read, and defined, with one index per declared dimension, and a group `b..` is indexed by "
        "itself, whole. An element function takes as many arguments as it has parameters.",
    ),
    "E105": Code(
        "a name with two meanings",
        "Operators and parallel ops share one space of names, element functions have another; the user's files may "
        "add to the shipped ones, and declare operators anew that no shipped rule is about. Within a declaration, "
        "tensors, attributes, degrees and dimensions differ, and an index stands once on the left of a statement.",
    ),
    "E106": Code(
        "an output that is not computed once",
        "Every output is the target of exactly one statement, an intermediate of at most one, and inputs are never "
        "assigned to. The statements under `eval` stand for all the others and compute every output again.",
    ),
    "E107": Code(
        "a size that nothing determines",
        "The size of a result's dimension is that of an input's dimension of the same name, or follows from a `where` "
        "equation. An index that is no declared dimension must be read bare somewhere, `x[i]`, which says how far it "
        "runs.",
    ),
    "E108": Code(
        "a derivative that is not that of the function",
        "`derivative x:` is compared with difference quotients of the definition, or of the `numpy:` line of a "
        "primitive, at many points. At a kink it may be any number between the slopes on both sides. Another gradient, "
        "as that of a straight-through estimator, is declared by `surrogate x:`.",
    ),
    "E109": Code(
        "a native call that is not allowed",
        "`torch:` and `numpy:` lines are parsed, never run as Python. They call functions of a fixed list with "
        "operands, attributes, numbers, sizes `|c|`, lists, nested calls, and strings of another list, such as "
        '`approximate="tanh"`. What would change an operand in place cannot be said. The line is optional where the '
        "equations say what is computed.",
    ),
    "E110": Code(
        "an incomplete element function",
        "An element function declares its derivative by every parameter. It has a definition, `fn relu(x) = "
        "maximum(x, 0)`, or, when it is a primitive, both a `torch:` and a `numpy:` line.",
    ),
    "E111": Code(
        "a term where it cannot stand",
        "Indices are whole-number arithmetic of axes, sizes and attributes. `uniform` is indexed by axes. The value "
        "after `else` is a number. Element functions read no tensor, reduce nothing and are not defined by "
        "themselves. Device axes belong to parallel ops.",
    ),
    "E112": Code(
        "dimensions that cannot be told apart",
        "A name is either one dimension or a group `b..` of any number, everywhere in a declaration. A broadcasting "
        "group `b..~` is the only group of its tensor, and stands in inputs only. `int<v>` names one dimension.",
    ),
    "E113": Code(
        "a fact that does not hold",
        "`fact` states what is true of an element function for all real numbers that meet its conditions: both sides "
        "have a value there, and compare as stated. Every fact is tried at many points when it is read; this one fails "
        "at the point given, or its conditions hold at none of them. Say where it holds: `fact sqrt(a) * sqrt(a) == a "
        "where a >= 0`.",
    ),
    "E114": Code(
        "a native call that gives something else",
        "`torch:` and `numpy:` lines compute what the statements say: the same values, types and shapes, and in torch "
        "the same gradient, at kinks and ties too. That is tried when a declaration is read, once for every content, "
        "on operands drawn by chance and on those that its own numbers suggest: at each of them, on both sides, far "
        "out. The message has the smallest operands found at which they differ. Where the native call is the one that "
        "is meant, change the statements, or say by `ties = first` and the declared derivatives how gradients are "
        "shared; else leave the line out, and code is made from the statements.",
    ),
    "E115": Code(
        "a term that is too large written out",
        "Element functions are used by writing out their definitions, those inside them first. A definition that calls "
        "another twice doubles it, and forty such lines would be a million million terms. At most 10,000 parts are "
        "written out, of at most 32 definitions inside one another.",
    ),
    "E116": Code(
        "a native call that fails",
        "torch or NumPy refuses the call: an argument that the function does not have, too many or too few, one of "
        "another type, an axis that is not there, shapes that do not fit. What is called may not change its operands "
        "either. Numbers of attributes that torch refuses by itself, such as a negative stride, are refused when the "
        "program runs.",
    ),
    "E117": Code(
        "an incomplete extern operator",
        "An `extern op` has a `torch:` and a `numpy:` line that compute the same, and no statements. It returns one "
        "tensor of integers, `-> i: int<c>[b.., k]`, at which values are then looked up; it has no gradient. The line "
        "`axes: b..` names the axes along which it may be divided: those that an input and the result have.",
    ),
    "E118": Code(
        "a declaration that samples contradict",
        "What an `extern op` does cannot be proved, so it is declared: along the axes of the line `axes:` a slice of "
        "the operands gives that slice of the result, and the integers lie in their range. That is tried on random "
        "operands, with many ties, when the declaration is read. Results must not depend on how equal elements happen "
        "to be ordered: use a stable sort.",
    ),
    "E119": Code(
        "a result that is not made of whole numbers",
        "An operator that returns integers, `-> i: int<n>[…]`, is whole-number arithmetic: comparisons, axes, sizes, "
        "integer tensors, `+ - * // %`, `select` and reductions. Floats may be compared. Integers and floats are "
        "results of different operators, for integers have no gradient.",
    ),
    "E120": Code(
        "a wrong number of tensors",
        "An operator is called with as many tensors as its declaration has inputs.",
    ),
    "E121": Code(
        "a tensor of the wrong rank",
        "The number of dimensions does not fit the declared shape, in which a group `b..` stands for any number of "
        "them. Where two groups stand side by side, as in `reduce_sum(x: [k.., r..])`, the call says which axes are "
        "which: `reduce_sum(x[b, c] -> [b])`.",
    ),
    "E122": Code(
        "sizes that differ",
        "A dimension name stands for one size in all operands of a call. In a broadcasting group `b..~`, dimensions "
        "are aligned on the right, and one of size 1 is repeated.",
    ),
    "E123": Code(
        "integers and floats mixed up",
        "`ids: int<v>[…]` takes integers below v; every other operand takes floats. Integers with a smaller range may "
        "stand for integers with a greater one, not the other way round.",
    ),
    "E124": Code("an attribute that is not there", "The call gives an attribute that the declaration does not have."),
    "E125": Code(
        "an attribute is missing",
        "An attribute without a default in the declaration must be given: `slice(x; dim=1, start=0, stop=4)`.",
    ),
    "E126": Code(
        "an attribute that does not fit",
        "Attributes that count or place something are whole numbers; one that names a dimension counts from 0, or "
        "from the end if it is negative, and must name one that exists.",
    ),
    "E127": Code(
        "a condition that does not hold",
        "The declaration's `where` conditions tie sizes and attributes together. At this call one of them fails, or "
        "has no solution in whole numbers, as when a size does not divide.",
    ),
    "E128": Code(
        "a read outside a tensor",
        "Some position of the result would read an element that does not exist. If the elements outside are to count "
        "as a number, say so: `x[i - 1 else 0]`.",
    ),
    "E129": Code(
        "an operator that takes no pattern",
        "A pattern, `f(x[b, s, (h k)] -> [b, s])`, names the axes of one operand. The operator must read one tensor "
        "whose dimensions are groups: those it keeps, `k..`, and at most one that it reduces, `r..`. Rearrange first "
        "otherwise.",
    ),
    "E130": Code(
        "a pattern that does not fit",
        "The left side names every axis of the operand once, with sizes whose products are its dimensions; the right "
        "side names each axis at most once, and only axes of the left side. An operator that reduces nothing keeps "
        "them all.",
    ),
    "E131": Code(
        "an index without bounds",
        "Whether a read lies inside its tensor is decided from the least and greatest value of its index. Division "
        "and remainder are by sizes or positive numbers, and whole numbers are those of 64 bits.",
    ),
    "E132": Code(
        "a fact that is hardly tried",
        "A fact with conditions is tried at points that meet them: such points are looked for near 0 and far out, and "
        "on the border of where the conditions hold. Where too few are found, a false fact would pass, and every proof "
        "that uses it would be worth nothing. Conditions that hold at single points say little: "
        "put the number in, `fact f(2) == 5`, or write an inequality that leaves room.",
    ),
    "E136": Code(
        "a fact about a function with another gradient",
        "`surrogate x: …` declares what a function passes back in place of its own derivative, as `stop` passes back "
        "0. Two terms of equal value may then have different gradients, so no value of such a function is put in for "
        "another. Facts about it, and about functions whose definitions call it, would prove what does not hold.",
    ),
}

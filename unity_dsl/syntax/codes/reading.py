"""E0xx: reading and parsing."""

from __future__ import annotations

from .code import Code

READING: dict[str, Code] = {
    "E001": Code(
        "a file cannot be read",
        "The path does not exist, is a directory, or may not be read: the message repeats what the system said. Or it "
        "is a folder of operators that holds no `.uop` file.",
    ),
    "E002": Code(
        "a file is not text",
        "Sources are UTF-8 text. The file holds bytes that are not, or a zero byte, so it is most likely another kind "
        "of file, a checkpoint or an archive. The offset of the first such byte is given.",
    ),
    "E003": Code("a file is empty", "The file holds nothing but white space. A `.udl` file declares one model."),
    "E004": Code(
        "a file is too large",
        "Sources are written by people; the limit of one mebibyte is some twenty thousand lines. A larger file is "
        "most likely not a source. Weights and data never stand in sources.",
    ),
    "E005": Code(
        "nested too deep",
        "Brackets and blocks may be nested 64 deep, and a statement may hold 128 operators. The limit protects every "
        "later stage, which walks the tree that the text describes. Give intermediate results names, on lines of "
        "their own.",
    ),
    "E006": Code(
        "a character that is not part of the language",
        "Names are made of the letters a to z, digits and `_`. Other characters may stand in comments only, and "
        "strings only in native calls of `.uop` files, in double quotes. Invisible characters, such as the no-break "
        "space, come in with text copied from a web page: delete them.",
    ),
    "E007": Code(
        "a tab in the indentation",
        "Blocks are told by their indentation, and how far a tab moves depends on the editor. Indent with spaces; the "
        "formatter uses two.",
    ),
    "E008": Code(
        "indentation that belongs to no block",
        "A line that ends a block must be indented exactly as the line that began the block's owner, or one of its "
        "owners. This line stands between two levels.",
    ),
    "E009": Code(
        "a bracket that is never closed",
        "Inside brackets the end of a line means nothing, so a missing `)` or `]` swallows the lines that follow. The "
        "diagnostic points to the bracket that was opened.",
    ),
    "E010": Code(
        "unexpected text",
        "The grammar does not allow this word or sign where it stands. The help names what could stand there. The "
        "grammars are `grammar/uop.lark`, `grammar/udl.lark` and `grammar/rules.lark`.",
    ),
    "E011": Code(
        "brackets that do not match",
        "A closing bracket has no opening one, or one of the other shape: `(` closes with `)`, `[` with `]`.",
    ),
    "E012": Code(
        "a keyword used as a name",
        "Some words are reserved by the language and cannot name a tensor, an axis or a parameter: choose another "
        "name. In `.uop`: op, extern, parallel, fn, where, eval, axes, derivative, surrogate, fact, torch, numpy, sum, "
        "prod, max, min, select, uniform, else, inf, int. In `.udl`: model, block, preset, precision, input, weight, "
        "buffer, update, repeat, scan, in, along, collect, cond, expect, as, if, else, return, loss, output, int. In "
        "`.rules`: rule, where, int.",
    ),
    "E013": Code(
        "a declaration without a body",
        "An operator, parallel operator, model, block, rule, `repeat`, `scan`, `cond` or `eval` is followed by its "
        "lines, indented by two spaces. A comment is not a body.",
    ),
    "E014": Code(
        "unexpected indentation",
        "Only the lines of a body are indented. A statement that goes on over several lines does so inside brackets.",
    ),
    "E015": Code(
        "a reduction without axes",
        "`sum`, `prod`, `max` and `min` reduce over named axes and take the product that follows: `sum(i) x[i] * "
        "w[i]`. The larger of two values is the function `maximum(a, b)`, the smaller one `minimum(a, b)`.",
    ),
    "E016": Code(
        "a missing arrow",
        "An operator's outputs follow `->`: `op relu(x: [b..]) -> y: [b..]`. A view has a pattern on both sides of "
        "its arrow: `x[b, s, (h k)] -> [b, h, s, k]`. Models have no indexing; a part of a tensor is taken with "
        "`slice`.",
    ),
    "E017": Code(
        "an unfinished size",
        "The size of an axis stands between two bars, `|c|` or `|b..|`, and nothing else stands between them.",
    ),
    "E018": Code(
        "a comparison outside brackets",
        "In value position a comparison is written in brackets, `[v == ids[n]]`, and is worth 1 or 0; several are "
        "multiplied. Without brackets it stands in `where` and as the first argument of `select` only.",
    ),
    "E019": Code(
        "a number out of range",
        "Numbers are those of float64, and whole numbers those of 64 bits. Infinity is written `inf`.",
    ),
    "E020": Code("a file without a model", "A `.udl` file declares exactly one model, and any number of blocks."),
    "E021": Code(
        "a second model",
        "A `.udl` file declares exactly one model. Parts that several models share are blocks; variants of one model "
        "are presets.",
    ),
    "E022": Code(
        "a statement in the wrong place",
        "Presets, the precision, inputs, the loss and the outputs belong to the model itself, `return` to a block "
        "itself; weights, buffers, assignments, updates, `repeat`, `scan` and `cond` may stand in both and inside one "
        "another. `collect` belongs to a `scan` itself.",
    ),
    "E023": Code(
        "a block without return",
        "A block is a function of tensors: its last line is `return` with one value or more, and nothing follows it.",
    ),
    "E024": Code(
        "given twice",
        "A name occurs twice in a list whose names must differ (parameters, attributes, targets), a clause such as "
        "`torch:` is given twice, or a parameter is set to two values.",
    ),
    "E025": Code(
        "an unknown dtype",
        "The dtypes are f64, f32, bf16, f16, and int<n> for whole numbers from 0 to n - 1. An integer tensor always "
        "says its range, because it is used as an index.",
    ),
    "E026": Code(
        "a model's parameter without default",
        "`model mlp[b = 64, d = 4 * b]`: every parameter of a model has a value, so that the file compiles as it "
        "stands; presets and `--set` change it. A block's parameter may lack a default, then each call gives it.",
    ),
    "E027": Code(
        "a faulty initialiser",
        "The initialisers are normal(std), uniform(low, high), zeros, ones, constant(value), xavier_uniform and "
        "kaiming_uniform. An input has none: the caller gives its value.",
    ),
    "E028": Code(
        "an output without a name",
        "The program returns outputs by name. `output logits` names the output after the tensor; an expression is "
        "given a name: `output softmax(logits) as probabilities`.",
    ),
    "E029": Code(
        "a left side that is not plain",
        "The left side of a statement is `y[i, j]` with bare axis names; in a model it is a name, or names with "
        "commas. What would be an index on the left is said on the right: every access is a read.",
    ),
    "E030": Code(
        "a file cannot be written",
        "`unityc fmt` and `unityc rules` write a new text beside the file and then put it in the file's place, so the "
        "folder must be writable too. The file is as it was.",
    ),
    "E031": Code(
        "nothing of that name to explain",
        "`unityc explain` knows operators, parallel operators and element functions of the shipped library and of the "
        "folders given with --ops, and the codes of diagnostics. `unityc list ops` names the operators.",
    ),
}

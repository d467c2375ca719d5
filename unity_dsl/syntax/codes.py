"""Every diagnostic code with what it means: `unityc explain CODE` prints it.

E0xx reading and parsing, E1xx `.uop` declarations and calls of operators, E2xx `.udl` models, E3xx devices, machines,
pins, layouts and strategies, E4xx files of out/, E54x proofs and certificates.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """A fault's title, and a paragraph on why it is a fault and what to do."""

    title: str
    text: str


CODES: dict[str, Code] = {
    # ------------------------------------------------------------------------------------------ E0xx reading, parsing
    "E001": Code(
        "a file cannot be read",
        "The path does not exist, is a directory, or may not be read. The message repeats what the system said.",
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
        "Names are made of the letters a to z, digits and `_`. Other characters may stand in comments only. There are "
        "no strings. Invisible characters, such as the no-break space, come in with text copied from a web page: "
        "delete them.",
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
        "grammars are `grammar/uop.lark` and `grammar/udl.lark`.",
    ),
    "E011": Code(
        "brackets that do not match",
        "A closing bracket has no opening one, or one of the other shape: `(` closes with `)`, `[` with `]`.",
    ),
    "E012": Code(
        "a keyword used as a name",
        "Some words are reserved by the language and cannot name a tensor, an axis or a parameter: choose another "
        "name. In `.uop`: op, parallel, fn, where, eval, derivative, torch, numpy, sum, prod, max, min, select, "
        "uniform, else, inf, int. In `.udl`: model, block, preset, input, weight, buffer, repeat, as, return, loss, "
        "output, int.",
    ),
    "E013": Code(
        "a declaration without a body",
        "An operator, parallel operator, model, block, `repeat` or `eval` is followed by its lines, indented by two "
        "spaces. A comment is not a body.",
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
        "Numbers are those of float64 and whole numbers of up to a hundred digits. Infinity is written `inf`.",
    ),
    "E020": Code("a file without a model", "A `.udl` file declares exactly one model, and any number of blocks."),
    "E021": Code(
        "a second model",
        "A `.udl` file declares exactly one model. Parts that several models share are blocks; variants of one model "
        "are presets.",
    ),
    "E022": Code(
        "a statement in the wrong place",
        "Presets, inputs, the loss and the outputs belong to the model itself, `return` to a block itself; weights, "
        "buffers, assignments and `repeat` may stand in both and inside `repeat`.",
    ),
    "E023": Code(
        "a block without return",
        "A block is a function of tensors: its last line is `return` with one value or more, and nothing follows it.",
    ),
    "E024": Code(
        "given twice",
        "A name occurs twice in a list whose names must differ (parameters, attributes, targets), or a clause such as "
        "`torch:` is given twice.",
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
        "a formatted file cannot be written",
        "`unityc fmt` writes the new text beside the file and then puts it in the file's place, so the folder must be "
        "writable too. The file is as it was.",
    ),
    "E031": Code(
        "nothing of that name to explain",
        "`unityc explain` knows operators, parallel operators and element functions of the shipped library and of the "
        "folders given with --ops, and the codes of diagnostics. `unityc list ops` names the operators.",
    ),
    # ------------------------------------------------------------------------------------------ E1xx .uop, calls
    "E101": Code(
        "a name that is not bound",
        "In a body a bare name is an index: it stands on the left of the statement or is reduced over. The size of a "
        "dimension is written `|c|`. Attributes stand after the `;` of the declaration, degrees of a parallel op in "
        "its brackets. In a `where` condition a bare name is a size.",
    ),
    "E102": Code(
        "a tensor that is not there",
        "A statement reads the operator's inputs and what earlier statements computed, from top to bottom.",
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
        "add to the shipped ones but not replace them. Within a declaration, tensors, attributes, degrees and "
        "dimensions differ, and an index stands once on the left of a statement.",
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
    "E109": Code(
        "a native call that is not allowed",
        "`torch:` and `numpy:` lines are parsed, never run as Python. They call functions of a fixed list with "
        "operands, attributes, numbers, sizes `|c|`, lists and nested calls. The line is optional where the equations "
        "say what is computed.",
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
        "and remainder are by sizes or positive numbers.",
    ),
    # ------------------------------------------------------------------------------------------ E2xx models
    "E200": Code(
        "an unknown parameter",
        "A setting (`--set name=value`) or a preset names a parameter that the model does not declare in `model "
        "name[…]`. Sizes that follow from others are set through these.",
    ),
    "E201": Code(
        "an unknown preset",
        "Presets are named sets of parameter values inside the model: `preset small: d = 32, h = 64`.",
    ),
    "E202": Code(
        "a parameter without a number",
        "Every parameter needs a number: a setting wins over the preset, the preset over the default. A block's "
        "parameter without default is given at the call: `ffn[hidden=64](x)`.",
    ),
    "E203": Code(
        "an unknown name in a size",
        "Sizes and attributes are computed from parameters: those of the model that stand before, and in a block its "
        "own. A tensor has no number at compile time.",
    ),
    "E204": Code("arithmetic without a result", "A division by zero, or a number that 64 bits do not hold."),
    "E205": Code(
        "a size that is not a positive whole number",
        "Sizes, counts and ranges of integers are whole and at least 1. `/` of whole numbers is whole only where it "
        "is exact, so a size that must divide is checked by writing it; `//` rounds down.",
    ),
    "E206": Code(
        "a name that is taken",
        "Tensors, parameters, repeats, blocks and outputs each need a name of their own where they are visible. "
        "Assigning to a tensor's name again is allowed, declaring it again is not. A stored tensor's full name has "
        "the names of the blocks and repeats around it in front: two calls of one block need two names to be assigned "
        "to.",
    ),
    "E207": Code(
        "an unknown tensor",
        "The name is that of no input, weight, buffer, assigned tensor or parameter that can be seen here. A block "
        "sees its own inputs and weights and the parameters. What is made in the body of a repeat is not visible "
        "after it, save for names that existed before the repeat: these are carried through.",
    ),
    "E208": Code(
        "a tensor used before it is made",
        "Statements run in the order of the text. Where two tensors are each computed from the other, the cycle is "
        "shown. In a repeat, assign the tensor before the repeat: the body then reads what the last iteration left.",
    ),
    "E209": Code(
        "a block that calls itself",
        "Blocks are written out where they are called, so a block cannot contain itself, directly or through others. "
        "The cycle is shown. `repeat` repeats a fixed number of times.",
    ),
    "E210": Code(
        "an unknown operator",
        "The name is that of no operator in the library (the shipped `.uop` files and those of `--ops DIR`), and of "
        "no block in the file.",
    ),
    "E211": Code(
        "a call that does not fit what is called",
        "A block is called as the whole right side of an assignment, `f = ffn[hidden=64](x)`, because its weights are "
        "named after what it is assigned to, with all of its inputs and only with parameters that it declares. "
        "`split` takes one tensor, `dim` and `parts`.",
    ),
    "E212": Code("a wrong number of results", "An assignment has as many names as its right side returns tensors."),
    "E213": Code(
        "a pattern of another rank",
        "The left side of a view, `x[b, s, (h k)] -> …`, names every dimension of the tensor.",
    ),
    "E214": Code(
        "a pattern or split that does not divide",
        "The factors of a dimension multiply to its size. One factor may be left without a size, it is what the "
        "others leave: `(h=heads k)`. Bare names in patterns are new names, not parameters: give sizes as `h=heads`.",
    ),
    "E215": Code(
        "a pattern whose sides do not match",
        "Every axis of the result is an axis of the operand, each stands once, and a view keeps all of them; only "
        "dimensions of size 1 (written `1`) come and go. A pattern at the call of a reduction drops the reduced axes: "
        "`reduce_mean(x[b, d] -> [b])`.",
    ),
    "E216": Code(
        "a carried tensor that changes",
        "A name that exists before a repeat and is assigned in its body is carried from iteration to iteration, so an "
        "iteration must leave it with the shape and type that it found.",
    ),
    "E217": Code(
        "float types that differ",
        "The float operands of an operator have one type. The diagnostic shows where both come from.",
    ),
    "E218": Code(
        "a stored tensor that is not complete",
        "Weights and buffers start from an initialiser, `weight w: f32[d, d] ~ normal(0.02)`. Weights are floats: "
        "integers have no gradient, so they are inputs or buffers.",
    ),
    "E219": Code(
        "an initialiser that does not fit its tensor",
        "A negative standard deviation, an empty range, a fan computed from fewer than two dimensions, or a value "
        "that the tensor's integers do not reach.",
    ),
    "E220": Code(
        "a model without a loss",
        "A model states what training minimises: `loss cross_entropy(logits, target)`.",
    ),
    "E221": Code("a second loss", "One number is minimised. Several terms are added: `loss a + 0.4 * b`."),
    "E222": Code("a loss that cannot be minimised", "It is one float of shape [] that depends on a weight."),
    "E223": Code(
        "a number where a tensor must stand",
        "Only numbers and parameters are combined here, so there is nothing to compute at run time.",
    ),
    "E224": Code(
        "a stored tensor that nothing needs",
        "An input, weight or buffer that neither the loss nor an output is computed from, or a weight that only "
        "outputs read, which training would never change. It is mostly a name that was misspelt or a line that was "
        "forgotten.",
    ),
    "E225": Code("a tensor too large", "The number of elements does not fit what a 64-bit program can address."),
    "E226": Code(
        "a model too large",
        "Blocks are written out where they are called. Blocks and repeats may be nested 32 deep, and all blocks "
        "together may come to 20,000 operators, where the body of a repeat counts once.",
    ),
    # ------------------------------------------------------------------------------------------ E3xx devices, layouts
    "E301": Code(
        "no such machine",
        "A machine is one of those that are shipped (`unityc list machines`), or the path of a `.toml` file that "
        "describes one. The shipped files are the best examples of what to write.",
    ),
    "E302": Code(
        "the number of devices",
        "A plan needs at least one device and at most as many as the machine has: the product of the sizes of its "
        "levels.",
    ),
    "E303": Code(
        "the shape of the mesh",
        "The mesh is a grid of the devices: `--mesh 2,4` for eight. Every axis has at least two devices and their "
        "product is the number of devices. Without a shape the axes are its prime factors.",
    ),
    "E304": Code(
        "a wrong machine file",
        "The file is not toml, lacks a key, has one that means nothing here, or a value of the wrong kind. Units are "
        "in the names of the keys: `bandwidth_gb_per_s` is 10^9 bytes per second in one direction, `latency_us` "
        "microseconds, `memory_gb` 10^9 bytes, `peak_tflops` 10^12 operations per second without sparsity.",
    ),
    "E305": Code(
        "an unreadable pin",
        "A pin is `name=layout`. The layout is one kind per mesh axis, slowest first, separated by commas, or one for "
        "all axes: `I` one logical tensor, `R` copies, `P` terms of a sum, `S0` slices of dimension 0, `name(0)` "
        "slices made by a declared parallel op.",
    ),
    "E306": Code(
        "a pin of nothing",
        "No weight or value of the model has the pinned name. Names within a repeat follow its name: `layer.attn.w`. "
        "`*` stands for any text.",
    ),
    "E307": Code(
        "an impossible pin",
        "The tensor cannot have the layout: a dimension is not divided evenly, the operator that makes it cannot be "
        "divided along that axis, or what is stored would be neither whole nor in slices. The message says which.",
    ),
    "E308": Code(
        "a pin of one iteration",
        "The iterations of a repeat are planned together, so a pin holds for all of them: write the name without the "
        "number, `layer.w`.",
    ),
    "E309": Code(
        "a strategy that does not fit",
        "The strategy leaves no way to compute an operator on these devices; for data parallelism, they do not divide "
        "the batch. Choose another number of devices or another batch, or `--strategy auto`.",
    ),
    "E310": Code(
        "no such strategy",
        "Strategies restrict which plans are considered; `unityc list strategies` names them. `auto` has no limits.",
    ),
    # ------------------------------------------------------------------------------------------ E4xx out/
    "E401": Code(
        "out/ cannot be written",
        "The folder of the program could not be made or written to; the message repeats what the system said. Nothing "
        "was changed: a program is written whole or not at all.",
    ),
    "E402": Code(
        "out/ holds something that is not ours",
        "The folder is not empty and was not written by `unityc`, or files in it were edited since. Compiling again "
        "would destroy them. Choose another folder, or overwrite with --force. Files that `unityc` never wrote, such "
        "as checkpoints, are left alone in any case.",
    ),
    "E403": Code(
        "no plan in the folder",
        "`unityc check` takes the folder of a compiled program. It holds a `plan.json`, in which the sources and "
        "choices that the program was compiled from are kept.",
    ),
    "E404": Code(
        "a damaged plan.json",
        "The file is not what `unityc` writes: it is not JSON, or lacks something. It is not meant to be edited. "
        "Compile the model again.",
    ),
    "E405": Code(
        "a stale plan.json",
        "The plan is hashed over the model, the operators and the machine that it came from, and it keeps their "
        "texts. Its hash does not fit the texts, or it is of another version of the format. Compile the model again.",
    ),
    "E406": Code(
        "the program cannot be run",
        "A rank of the program raised an error, died, or waited for another rank without end while it was being "
        "checked. The trace of that rank is shown. If no file of the program was edited, this is a fault of `unityc`.",
    ),
    # ------------------------------------------------------------------------------------------ E54x proofs
    "E542": Code(
        "a rule that is not proved",
        "Only proved rules may change a model. The message shows sizes at which the two sides of the rule differ, or "
        "says which obligation of its proof could not be met.",
    ),
}

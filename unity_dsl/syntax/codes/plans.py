"""Diagnostic codes E3xx: devices, machines, pins, layouts and strategies; E4xx: files of out/."""

from __future__ import annotations

from .code import Code

PLANS: dict[str, Code] = {
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
        "product is the number of devices. Without a shape the search chooses among all with up to three axes.",
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
        "slices made by a declared parallel op. Several kinds leave the meshes with as many axes: give `--mesh` "
        "for one of them. No tensor may be pinned to two different layouts.",
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
    "E311": Code(
        "pins that ask for too many layouts of a value",
        "A value is produced in one layout, and at most two more are made of it. Here its readers are pinned so that "
        "they ask for more than these three: leave one of them open, or pin it to a layout that another has.",
    ),
    "E312": Code(
        "an unreadable amount of memory",
        "An amount is a number and a unit: `40GB`, `1.5GiB`. kB, MB, GB and TB are powers of 1000, KiB, MiB and GiB "
        "powers of 1024.",
    ),
    "E313": Code(
        "a plan that does not fit the memory",
        "The plan holds more on each device than there is, or than `--memory` allows, so no program is written. "
        "Counted is the most at a time in a simulated step, on each device: parameters and buffers as they are stored, "
        "the two moments that AdamW keeps, gradients as far as there are any, what the forward pass keeps for the "
        "backward one, and what operators and collectives hold while they run. The strategy `auto` has "
        "looked for the cheapest plan that fits and found none; other strategies do not look. More devices hold "
        "smaller slices of the weights; a smaller batch keeps fewer activations, and `auto` has tried micro-batches, "
        "whose gradients are accumulated (`--micro-batches N` fixes their number); a dtype of two bytes halves most of "
        "it. `--force` writes the program all the same, with the warning W301.",
    ),
    "E314": Code(
        "no such precision",
        "The precision is the float type of a program's arithmetic: `f32`, or `bf16` or `f16` with weights, their "
        "gradients and the optimizer in float32, or `tf32`: `f32` whose matrix products and convolutions may round "
        "their factors to TF32 on GPUs. `--precision` wins over the model's line `precision bf16`; without "
        "either every tensor has the type that it is declared with.",
    ),
    "E315": Code(
        "nothing to recompute",
        "`--recompute` takes names of repeats, scans and conds, separated by commas: the backward pass recomputes "
        "each of their iterations, instead of saving its activations. Within another one the name follows that of the "
        "outer: `layer.step`. `layer:12` names the first 12 iterations. `all` stands for those that are in "
        "no other, `none` for no one; without the option, or with `auto`, it is done where a plan fits the memory only "
        "so, or is cheaper than others that fit. A model without a loss has no backward pass.",
    ),
    "E316": Code(
        "micro-batches that would change the model",
        "A step runs as micro-batches where that is the same step: each operator treats the examples of a batch apart, "
        "or adds up over them what enters the loss linearly, as a mean of the examples' losses does. That is proved as "
        "for data parallelism: no operator may need a collective along the batch. Batch normalisation mixes the "
        "examples, and running statistics would be updated for each micro-batch. The message names the first operator "
        "for which it is not so.",
    ),
    "E317": Code(
        "a batch that is not divided",
        "Micro-batches are equal parts of the batch: of the parameter that is the first dimension of every input, "
        "`input x: f32[b, d]`. Their number divides it. A model without a loss has none.",
    ),
    "E318": Code(
        "a strategy that finds no plan",
        "An algorithm of the literature looked where its authors let it, on their kinds of meshes and among their "
        "kinds of configurations, and found no plan of this model for these devices. Another number of devices may "
        "have one, and `--strategy auto` looks everywhere.",
    ),
    "E319": Code(
        "no picture",
        "`unityc compare --picture` draws with matplotlib, which `pip install 'unity-dsl[plot]'` installs. Its bars "
        "are speedups over data parallelism, so at least one model needs a plan of `data_parallel`: the devices divide "
        "its batch.",
    ),
    "E320": Code(
        "a search that was ended too early",
        "`--time-limit`, or an interruption (Ctrl-C), ends the search with the best plan that it has found. Here it "
        "had none yet. Before it has one it types and prices the operators on a mesh or two; algorithms of the "
        "literature that solve one problem as a whole have nothing before their end.",
    ),
    "E321": Code(
        "no plan of another system",
        "`--plan` reads plans that Galvatron, nnScaler and autoparallel export as JSON. The message says what is wrong "
        "with the file, and where: a field that is missing, a value of another kind, or text that is no JSON. "
        "docs/strategies.md has the fields that are read.",
    ),
    "E322": Code(
        "a plan that does not fit the model",
        "A plan of another system has to be one of this model for this number of devices: as many layers or operators, "
        "as many examples a step, and divisions that the operators and their sizes allow. Operators are mapped in "
        "order, with repeats written out, and iterations of a repeat have the same division. The message names what "
        "of the plan does not fit, and what of the model.",
    ),
    "E323": Code(
        "a plan outside of the space",
        "The plan is of a kind that no plan here has: stages of a pipeline, or sequences that are divided over devices "
        "in a layer of another system. Ask the other system for plans without.",
    ),
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
        "`unityc check` and `unityc trace` take the folder of a compiled program. It holds a `plan.json`, in which the "
        "sources and choices that the program was compiled from are kept.",
    ),
    "E404": Code(
        "a damaged plan.json",
        "The file is not what `unityc` writes: it is not JSON, or lacks something. It is not meant to be edited. "
        "Compile the model again.",
    ),
    "E405": Code(
        "a stale plan.json",
        "The plan is hashed over the model, the operators and the machine that it came from, and it keeps their "
        "texts. Its hash does not fit the texts, it is of another version of the format, or what it says of layouts "
        "and rules does not fit the model of these texts, so that a trace would not be of the program. Compile the "
        "model again.",
    ),
    "E406": Code(
        "the program cannot be run",
        "A rank of the program raised an error, died, or waited for another rank without end while it was being "
        "checked. The trace of that rank is shown. If no file of the program was edited, this is a fault of `unityc`.",
    ),
}

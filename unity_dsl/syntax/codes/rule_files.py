"""E55x: files of rules of other systems, as title and text."""

from __future__ import annotations

from .code import Code

RULE_FILES: dict[str, Code] = {
    "E551": Code(
        "no file of rules",
        "`unityc rules audit` reads two formats: the protobuf message `GraphSubst.RuleCollection` of TASO "
        "(`graph_subst.pb`), and the JSON of Unity (`graph_subst_3_v2.json`). A file that begins with a brace or a "
        "bracket is taken for the latter, any other for the former. It is most likely another file, or cut short.",
    ),
    "E552": Code(
        "a damaged rule",
        "Something in the file lacks a field, has one of another type, or refers to an operator or a result that is "
        "not there. The message names the place: `rule[3].srcOp[0]` is the first operator of the source of the fourth "
        "rule. Nothing of such a file is classified, since it is not known what else is wrong in it.",
    ),
    "E553": Code(
        "an operator or parameter that the format does not have",
        "Operators and parameters have names in Unity's format and numbers in TASO's. One that neither system has is "
        "no part of the format. Of an operator that a system has, but of which no reading is known, the rule is "
        "answered `unsupported`.",
    ),
    "E554": Code(
        "operators made of one another",
        "A side of a rule is a graph without cycles: every operator is computed from external tensors and results of "
        "others. Here some operators need one another's results.",
    ),
    "E555": Code(
        "a file of rules too large",
        "A protobuf file may have 1 MiB and a JSON file 8 MiB, with 20,000 rules of at most 8 operators a side, each "
        "with 8 operands, and at most 16 external tensors. The published files have 640 rules of three operators.",
    ),
    "E556": Code(
        "no such reading",
        "Neither format says what its operators compute. `--reading OPERATOR=NAME` chooses among the meanings that are "
        "known of an operator, for the whole file; which one was taken is printed with the answers.",
    ),
}

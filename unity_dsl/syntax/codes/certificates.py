"""E54x: the prover's commands and its certificates, as title and text."""

from __future__ import annotations

from .code import Code

CERTIFICATES: dict[str, Code] = {
    "E541": Code(
        "no rule of that name",
        "`unityc rules show NAME` looks among the rules of the files given with --rules, or else among those that are "
        "shipped; `unityc MODEL.udl --forbid NAME` among both.",
    ),
    "E542": Code(
        "a rule that is not proved",
        "Only rules that are proved for all sizes are used. Where the message gives sizes and two numbers, the rule is "
        "false: both sides were run there. Otherwise the prover found neither a proof nor such numbers, and says what "
        "it could not show; often a `where` condition is missing.",
    ),
    "E543": Code(
        "a missing certificate",
        "`unityc rules verify` compares the proofs of the rules in X.rules with X.certificates.json beside it, which "
        "`unityc rules prove X.rules --write` writes. Every rule needs a certificate there.",
    ),
    "E544": Code(
        "a damaged file of certificates",
        "The file is not what `unityc rules prove --write` writes: it is not JSON, lacks something, or was edited, so "
        "that a certificate no longer fits its hash. Nothing in it counts as a proof.",
    ),
    "E545": Code(
        "a stale certificate",
        "A certificate is for one text of a rule, the declarations that the rule reaches, one version of the prover "
        "and one of z3. One of them has changed, or the new proof is not the one that was certified. Until it is "
        "written again the rule counts as not proved, and is proved again wherever it is used.",
    ),
}

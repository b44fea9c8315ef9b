"""Read a rule: its requirement, its reason, and how a violation would be noticed.

Every rule has an example that passes and one that fails. `tw.explain` applies all rules to a config.
"""

import tilewright as tw

rule = next(rule for rule in tw.gemm.OP.rules if rule.slug == "lds-overflow")
facts = {
    "rule": f"{rule.code} {rule.slug}",
    "requires": rule.what,
    "why": rule.why,
    "fix": rule.fix,
    "noticed": f"by the {rule.enforced_by}",
    "reads": ", ".join(rule.reads),
}
for title, text in facts.items():
    print(f"{title:9}", " ".join(text.split()))

for title, values in (("passes", rule.good), ("fails", rule.bad)):
    config = tw.gemm.OP.make_example(values)
    (verdict,) = [verdict for verdict in tw.explain(config, rule.arch) if verdict.rule is rule]
    print(f"{title:9}", config.block, verdict.violation or "")
    assert verdict.passed == (title == "passes")

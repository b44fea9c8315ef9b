"""Compare reports with the JSON schema of SARIF 2.1.0, which OASIS publishes (sarif-schema-2.1.0.json).

    python tools/check_sarif.py --schema sarif-schema-2.1.0.json findings.sarif …

The schema is not part of this repository. The tests check the required properties without it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from jsonschema import FormatChecker  # type: ignore[import-untyped]
from jsonschema.validators import validator_for  # type: ignore[import-untyped]

from tilewright.base.documents import parse_json


def find_problems(schema: Path, report: Path) -> list[str]:
    """Return each place of a report that the schema does not allow, with the reason."""
    rules = parse_json(schema.read_text("utf-8"))
    validator = validator_for(rules)(rules, format_checker=FormatChecker())
    document = parse_json(report.read_text("utf-8"))
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(document)]


def main() -> int:
    """Print the problems of all reports; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--schema", type=Path, required=True, metavar="FILE", help="the schema")
    parser.add_argument("reports", type=Path, nargs="+", metavar="REPORT", help="reports with the suffix .sarif")
    given = parser.parse_args()
    bad = 0
    for report in given.reports:
        problems = find_problems(given.schema, report)
        bad += bool(problems)
        print(f"{report}: {'; '.join(problems) or 'follows the schema'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

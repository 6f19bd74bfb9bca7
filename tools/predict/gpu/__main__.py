"""`python -m headrace.tools.predict.gpu`: the model of GPUs against published figures.

--fit     print the constants that the rows of kind FIT give, and predict nothing else
--json    rows as JSON
"""

from __future__ import annotations

import json
import sys

from headrace.tools.predict.gpu.published import fit, median_error, published_rows, table


def shown(value: float) -> str:
    """Three or four digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main(argv: list[str]) -> int:
    """Print what the arguments ask for."""
    if "--fit" in argv:
        for path, value in fit().items():
            print(f"{path} = {value:.4g}")
        return 0
    rows = table(published_rows())
    if "--json" in argv:
        print(json.dumps(rows, indent=1))
        return 0
    print("| model | metric | conditions | published | predicted | error | kind |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        kind = f"FIT {row['sets']}" if row["sets"] else row["kind"]
        cells = row["model"], row["metric"], row["conditions"], shown(row["published"]), shown(row["predicted"])
        print(f"| {' | '.join(cells)} | {row['error']:+.0%} | {kind} |")
    held = sum(row["kind"] == "HO" for row in rows)
    print(f"\nmedian absolute error of the {held} rows that are held out: {median_error(rows):.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

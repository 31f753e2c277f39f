"""
Counts lines of Rust by crate: without blank lines, comments and tests. Tests are files and folders named `tests`, and what
follows `#[cfg(test)]` in a file: the project keeps them at its end.

    python3 infra/lines.py            the working tree
    python3 infra/lines.py OTHER      another checkout, beside it
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def is_test(path):
    return any(part in ("tests", "benches") for part in path.parts) or path.stem == "tests"


def lines(text):
    kept = []
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("#[cfg(test)]"):
            break
        if line and not line.startswith("//"):
            kept.append(line)
    return len(kept)


def by_crate(root):
    counts = {}
    elsewhere = ("target", ".local")
    manifests = (path for path in root.glob("**/Cargo.toml") if path.relative_to(root).parts[0] not in elsewhere)
    crates = {manifest.parent for manifest in manifests} - {root}
    for crate in sorted(crates):
        # A crate may lie in another one's directory.
        inner = [other for other in crates if crate in other.parents]
        sources = (path for path in crate.rglob("*.rs") if not any(other in path.parents for other in inner))
        code = (path for path in sources if not is_test(path.relative_to(crate)))
        counts[crate.name] = sum(lines(path.read_text(encoding="utf-8")) for path in code)
    return counts


def main(others):
    trees = [by_crate(root) for root in [*map(Path, others), ROOT]]
    crates = sorted(set().union(*trees))
    for crate in [*crates, None]:
        counts = [tree.get(crate, 0) if crate else sum(tree.values()) for tree in trees]
        print(f"{crate or 'all':<16}" + "".join(f"{count:>9,}" for count in counts))


if __name__ == "__main__":
    main(sys.argv[1:])

"""As much of PromQL as it takes to say which metrics and labels an expression uses. It believes that the expression is one."""

import re
from dataclasses import dataclass, field

TOKEN = re.compile(r"""
    (?P<text>"(?:[^"\\]|\\.)*")
  | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:ms|[smhdwy])?(?:\d+(?:ms|[smhdwy]))*)
  | (?P<word>[A-Za-z_:][A-Za-z0-9_:]*)
  | (?P<sign>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){}\[\],:@])
  | (?P<space>\s+)
""", re.VERBOSE)
GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
OPERATORS = {"and", "or", "unless", "offset", "bool"}
# They take counters, and nothing else may be given to them.
OF_COUNTERS = {"rate", "increase", "irate"}


@dataclass
class Selector:
    """One metric of an expression, as `name{label="value"}` says it."""

    metric: str
    # Label, sign and value of each matcher.
    matchers: list = field(default_factory=list)
    # The function that it is given to directly, if any.
    function: str = ""


@dataclass
class Expression:
    selectors: list = field(default_factory=list)
    grouping: set = field(default_factory=set)

    def metrics(self):
        return {selector.metric for selector in self.selectors}


def tokens(text):
    at = 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if not found:
            raise ValueError(f"no PromQL at {text[at:at + 20]!r} in {text!r}")
        at = found.end()
        if found.lastgroup != "space":
            yield found.lastgroup, found.group()


def parse(text):
    """The selectors and the labels that are grouped by."""
    line = [*tokens(text), ("end", ""), ("end", "")]
    found, depth, at = Expression(), [], 0
    while line[at][0] != "end":
        kind, word = line[at]
        following = line[at + 1][1]
        at += 1
        if word in "([{":
            depth.append(word)
        elif word in ")]}" and (not depth or depth.pop() + word not in ("()", "[]", "{}")):
            raise ValueError(f"{word} closes nothing in {text!r}")
        if kind != "word" or word in OPERATORS or following in ("by", "without"):
            continue
        if word in GROUPING:
            labels, at = until(line, at, "(", ")")
            if any(kind != "word" for kind, word in labels if word != ","):
                raise ValueError(f"no labels: {labels}")
            found.grouping |= {label for kind, label in labels if kind == "word"}
        elif following != "(":
            before = [word for _, word in line[max(at - 3, 0):at - 1]]
            selector = Selector(word, function=before[0] if before[1:] == ["("] else "")
            if following == "{":
                matchers, at = until(line, at, "{", "}")
                selector.matchers = matched(matchers)
            found.selectors.append(selector)
    if depth:
        raise ValueError(f"{depth[-1]} is not closed in {text!r}")
    return found


def until(line, at, first, last):
    """What stands between two signs, and where it goes on behind them."""
    if line[at][1] != first:
        return [], at
    end = next((end for end in range(at, len(line)) if line[end][1] == last), None)
    if end is None:
        raise ValueError(f"{first} is not closed")
    return line[at + 1:end], end + 1


def matched(parts):
    words = [part for part in parts if part[1] != ","]
    triples = [words[at:at + 3] for at in range(0, len(words), 3)]
    if any([kind for kind, _ in triple] != ["word", "sign", "text"] for triple in triples):
        raise ValueError(f"no matchers: {parts}")
    return [(label, sign, text[1:-1]) for (_, label), (_, sign), (_, text) in triples]


def exported(page):
    """Of a page of metrics: each sample's name with its labels, as {name: {label: {value}}}."""
    found = {}
    for line in page.splitlines():
        sample = re.match(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})? ", line)
        if not line.startswith("#") and sample:
            labels = found.setdefault(sample[1], {})
            for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample[2] or ""):
                labels.setdefault(label, set()).add(value)
    return found

"""Prints a frame of the ledger: what its writer says of itself, then its events, each with its number, in protobuf's text
format.

    target/release/apportion schema descriptors --out target/apportion.binpb
    .local/venv/bin/python examples/read_frame.py FILE
"""

import argparse
import itertools

from google.protobuf import text_format

from apportion_messages import Messages


def varint(number):
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)


def delimited(content):
    return varint(len(content)) + content


def whole(numbers, count):
    """A list goes on as it ends."""
    if len(numbers) > count or (count and not numbers):
        raise ValueError("a list is too long, or empty")
    return [*numbers, *[numbers[-1] if numbers else 0] * (count - len(numbers))]


def cut(content, lengths, shared):
    """Texts, of which each begins as the one before it does."""
    texts, begin = [b""], 0
    for length, same in zip(lengths, whole(shared or [0], len(lengths)) if lengths else []):
        end = begin + length - same
        texts.append(texts[-1][:same] + content[begin:end])
        begin = end
    if begin != len(content):
        raise ValueError("texts are too long, or too short")
    return texts[1:]


def values(column, count, words):
    """The values of a column, as protobuf writes them."""
    if column.values:
        return map(varint, whole(column.values, count))
    if column.differences:
        return (varint(number % 2**64) for number in itertools.accumulate(whole(column.differences, count)))
    if not column.words and not column.lengths:
        return map(delimited, messages(column.columns, count, words))
    numbers = whole(column.words or [0], count)
    texts = column.digits.hex().encode() or column.texts
    own = iter(cut(texts, whole(column.lengths, numbers.count(0)), column.shared))
    return (delimited(words[number - 1] if number else next(own)) for number in numbers)


def messages(columns, count, words):
    """As many messages, put together from the columns of their fields."""
    found = [bytearray() for _ in range(count)]
    for column in columns:
        runs = [0, *itertools.accumulate(column.rows or [0, count])]
        have = [row for begin, end in zip(runs[1::2], runs[2::2]) for row in range(begin, end)]
        counts = whole(column.counts or [1], len(have)) if have else []
        content = values(column, sum(counts), words)
        wire_type = 0 if column.values or column.differences else 2
        for row in itertools.chain.from_iterable(map(itertools.repeat, have, counts)):
            found[row] += varint(column.field << 3 | wire_type) + next(content)
    return map(bytes, found)


def read(contract, content):
    """The frame without its events, and the events, whichever way they are written."""
    frame = contract.Frame.FromString(content)
    columns, events = frame.columns, list(frame.events)
    if frame.HasField("columns"):
        words = cut(columns.words, columns.lengths, columns.shared)
        events = [contract.Event.FromString(event) for event in messages(columns.columns, columns.rows, words)]
    frame.ClearField("columns")
    frame.ClearField("events")
    return frame, events


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frame", help="a file with the frame's bytes")
    parser.add_argument("--messages", default="target/apportion.binpb", help="the descriptors")
    options = parser.parse_args()
    with open(options.frame, "rb") as file:
        frame, events = read(Messages(options.messages), file.read())
    for number, message in [(0, frame), *enumerate(events, frame.first_event_no)]:
        print(number, text_format.MessageToString(message, as_one_line=True))

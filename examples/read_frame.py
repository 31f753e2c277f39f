"""Prints a frame of the ledger: what its writer says of itself, then its events, each with its number, in protobuf's text
format. Frames are believed: not everything that a reader has to refuse is refused here.

    target/quick/apportion schema descriptors --out target/apportion.binpb
    .local/venv/bin/python examples/read_frame.py FILE
"""

import argparse
import io
from itertools import accumulate

from google.protobuf import text_format

from apportion_messages import Messages


def varint(number):
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)


def whole(numbers, count):
    """A list goes on as it ends."""
    return [*numbers, *numbers[-1:] * (count - len(numbers))]


def texts(content, lengths, shared):
    """Each begins as the one before it does."""
    content, text = io.BytesIO(content), b""
    for length, same in zip(lengths, whole(shared or [0], len(lengths))):
        text = text[:same] + content.read(length - same)
        yield text


def values(column, count, words):
    """The values of a column as protobuf writes them, each behind the number of its field."""
    if column.values or column.differences:
        numbers = whole(column.values, count) or accumulate(whole(column.differences, count))
        return (varint(column.field << 3) + varint(number % 2**64) for number in numbers)
    if column.words or column.lengths:
        numbers = whole(column.words or [0], count)
        own = texts(column.digits.hex().encode() or column.texts, whole(column.lengths, numbers.count(0)), column.shared)
        contents = (words[number - 1] if number else next(own) for number in numbers)
    else:
        contents = messages(column.columns, count, words)
    return (varint(column.field << 3 | 2) + varint(len(content)) + content for content in contents)


def messages(columns, count, words):
    """As many messages, put together from the columns of their fields."""
    found = [b""] * count
    for column in columns:
        bounds = [0, *accumulate(column.rows or [0, count])]
        rows = [row for begin, end in zip(bounds[1::2], bounds[2::2]) for row in range(begin, end)]
        counts = whole(column.counts or [1], len(rows))
        content = values(column, sum(counts), words)
        for row, times in zip(rows, counts):
            found[row] += b"".join(next(content) for _ in range(times))
    return found


def read(contract, content):
    """The frame without its events, and the events, whichever way they are written."""
    frame = contract.Frame.FromString(content)
    columns, events = frame.columns, list(frame.events)
    words = list(texts(columns.words, columns.lengths, columns.shared))
    events += map(contract.Event.FromString, messages(columns.columns, columns.rows, words))
    frame.ClearField("columns")
    frame.ClearField("events")
    return frame, events


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("frame", type=argparse.FileType("rb"), help="a file with the frame's bytes")
    parser.add_argument("--messages", default="target/apportion.binpb", help="the descriptors")
    options = parser.parse_args()
    frame, events = read(Messages(options.messages), options.frame.read())
    for number, message in [(0, frame), *enumerate(events, frame.first_event_no)]:
        print(number, text_format.MessageToString(message, as_one_line=True))

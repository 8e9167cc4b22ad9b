"""Tokenizers: between text and token ids as cellmq's own do it, for the golden outputs."""

import codecs
import json
import pathlib
import re

codecs.register_error("each-byte", lambda e: ("\ufffd", e.start + 1))
INNER = -1


class Tokenizer:
    """One side's tokenizer, from its entry in config.json and the vocabulary file beside it."""

    def __init__(self, directory, entry):
        entry = {"type": entry} if isinstance(entry, str) else dict(entry)
        self.type, self.lowercase = entry["type"], entry.get("lowercase", False)
        between = entry.get("separator")
        if between is None or self.type == "ids":
            between = "" if self.type in ("bytes", "characters") else " "
        self.separator = between
        self.segment_separator = entry.get("segment_separator")
        if self.segment_separator is None:
            self.segment_separator = entry.get("separator") if entry.get("separator") is not None else between
        self.tokens = []
        if entry.get("vocab"):
            self.tokens = json.loads(pathlib.Path(directory, entry["vocab"]).read_text(encoding="utf-8"))
        self.ids = {token: i for i, token in enumerate(self.tokens)}

    def encode(self, text):
        """Return the ids of a text; of a tree in postorder, INNER after the two subtrees that it joins."""
        if self.type == "bytes":
            return list(text.encode())
        if self.type == "ids":
            return [int(piece) for piece in text.split()]
        if self.type == "tree":
            return self._tree(text)
        if self.type == "words":
            return [self._id(piece) for piece in text.split(self.separator)] if text else []
        return [self._id(c.lower() if self.lowercase else c) for c in text]

    def decode(self, segments):
        """Return the text of an output, a list of ids for each segment."""
        out, started = b"", False
        for segment in segments:
            for i, token in enumerate(segment):
                if started:
                    out += (self.separator if i else self.segment_separator).encode()
                out, started = out + self._bytes(token), True
        return codecs.getincrementaldecoder("utf-8")("each-byte").decode(out)  # without an incomplete last character

    def _bytes(self, token):
        if self.type == "bytes":
            return bytes([token]) if token < 256 else b""
        return (str(token) if self.type == "ids" else self.tokens[token]).encode()

    def _id(self, piece):
        if piece not in self.ids:
            raise ValueError(f"{piece!r} is not in the vocabulary")
        return self.ids[piece]

    def _tree(self, text):
        ids, children = [], [0]  # children of each node that is open; the first is what holds the root
        for symbol in re.findall(r"[()]|[^()\s]+", text):
            if symbol != ")":
                children[-1] += 1
            if symbol == "(":
                children.append(0)
            elif symbol != ")":
                ids.append(self._id(symbol))
            elif len(children) == 1 or children.pop() != 2:
                raise ValueError(f"{text!r} is no binary tree")
            else:
                ids.append(INNER)
        if children != [1]:
            raise ValueError(f"{text!r} is no binary tree")
        return ids

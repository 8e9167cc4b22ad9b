"""Golden outputs: what a model of families.py answers, in the form of a line of golden.jsonl.

PyTorch computes them in float64, greedily, each request alone. An answer comes with its margin: the least distance
between the best and the second best logit on the way. Within it another order of additions changes no choice.
"""

import math

import torch

from text import INNER, Tokenizer

TOLERANCE = 0.001  # of log-probabilities and logits; float32 is nearer to float64 than that


class Oracle:
    """A model, its configuration and its tokenizers. It answers inputs: texts or, but for trees, lists of token ids."""

    def __init__(self, model, config, directory):
        self.model, self.config = model.double().eval(), config
        self.labels = config.get("labels") or [str(i) for i in range(config.get("num_labels", 0))]
        both = config.get("tokenizer") or {"type": "tree", "vocab": "vocab.json"}  # the default is that of trees
        self.source = Tokenizer(directory, config.get("source_tokenizer") or both)
        self.target = Tokenizer(directory, config.get("target_tokenizer") or both)

    @torch.no_grad()
    def answer(self, given, max_tokens):
        """Return the golden line of an input as a dictionary, and its margin."""
        line = {"input": given} if isinstance(given, str) else {"input_ids": list(given)}
        answer = {"rnn_lm": self._language, "rnn_seq2seq": self._translate, "rnn_classifier": self._classify,
                  "tree_lstm": self._tree}[self.config["model_type"]]
        more, margin = answer(given, max_tokens)
        return {**line, **more, "tolerance": TOLERANCE}, margin

    def _ids(self, given):
        ids = self.source.encode(given) if isinstance(given, str) else list(given)
        size = self.config.get("source_vocab_size", self.config.get("vocab_size"))
        if not ids or not all(0 <= i < size for i in ids):
            raise ValueError(f"input {given!r}: is empty or has a token outside 0 to {size - 1}")
        return ids

    def _language(self, given, max_tokens):
        ids, eos = self._ids(given), self.config.get("eos_token_id")
        logits, state = self.model(torch.tensor([ids]))
        read = torch.log_softmax(logits[0, :-1], dim=-1).gather(1, torch.tensor(ids[1:], dtype=torch.long)[:, None]).sum().item()
        out = Greedy(eos, max_tokens)
        while out.take(logits[0, -1]):
            logits, state = self.model(torch.tensor([[out.tokens[-1]]]), state)
        return {"max_tokens": max_tokens, **self._written([out]), "input_logprob": read}, out.margin

    def _translate(self, given, max_tokens):
        c, segments = self.config, [given]
        if c.get("segment") == "whitespace" and isinstance(given, str):
            segments = given.split()
        outputs = []
        for segment in segments:
            memory, state = self.model.encode(torch.tensor([self._ids(segment)]))
            out, token = Greedy(c.get("eos_token_id", 0), c["max_target_length"]), c.get("bos_token_id", 0)
            logits, state = self.model.step(torch.tensor([[token]]), state, memory)
            while out.take(logits[0, -1]):
                logits, state = self.model.step(torch.tensor([[out.tokens[-1]]]), state, memory)
            outputs.append(out)
        return self._written(outputs), min(out.margin for out in outputs)

    def _written(self, outputs):
        return {"tokens": [t for out in outputs for t in out.tokens], "text": self.target.decode([out.tokens for out in outputs]),
                "finish_reason": "length" if any(out.cut for out in outputs) else "stop",
                "logprob": sum(out.logprob for out in outputs)}

    def _classify(self, given, _):
        return self._said(self.model(torch.tensor([self._ids(given)]))[-1][0])

    def _tree(self, given, _):
        states = []
        for node in self.source.encode(given):
            if node != INNER:
                states.append(self.model.leaf_state(torch.tensor([node])))
                continue
            right, left = states.pop(), states.pop()
            states.append(self.model.node_state(left, right))
        return self._said(self.model.classifier(states[0][0])[0])

    def _said(self, logits):
        return {"label": self.labels[int(logits.argmax())], "logits": logits.tolist(), "finish_reason": "stop"}, margin_of(logits)


class Greedy:
    """An output that takes the best token each time, until the end token or a number of tokens."""

    def __init__(self, eos, bound):
        self.eos, self.bound = eos, bound
        self.tokens, self.logprob, self.margin, self.cut = [], 0.0, math.inf, False

    def take(self, logits):
        """Choose a token and say whether there is another one to come."""
        token = int(logits.argmax())
        self.margin = min(self.margin, margin_of(logits))
        self.logprob += torch.log_softmax(logits, dim=-1)[token].item()
        if token == self.eos:
            return False
        self.tokens.append(token)
        self.cut = len(self.tokens) == self.bound
        return not self.cut


def margin_of(logits):
    """Return how far the best logit is above the second best."""
    if len(logits) == 1:
        return math.inf
    best, second = logits.topk(2).values.tolist()
    return best - second

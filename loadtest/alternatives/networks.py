"""The model families of cellmq, served with PyTorch: from a batch of requests to their answers.

The modules and the weights are those of models/export, in float32. A request is a dictionary with "input", a text, and
"max_tokens"; an answer has "text" or "label", and the numbers of tokens read and written.
"""

import json
import pathlib
import sys
import time

import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence, pad_sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "models" / "export"))

import decoding  # noqa: E402
import families  # noqa: E402
import storage  # noqa: E402

DEFAULT_TOKENS = 128


def load(directory, jit=True, packed=True):
    """Return the predictor of a model's directory. jit compiles its loops; packed leaves padding out of them."""
    directory = pathlib.Path(directory)
    config = json.loads((directory / "config.json").read_text())
    module = families.build(config).eval()
    module.load_state_dict({n: t.float() for n, t in storage.load(directory / "model.safetensors").items()})
    return PREDICTORS[config["model_type"]](module, config, directory, jit, packed)


def fused(rnn):
    """Return the weights and biases of an LSTM's layers as decoding.cell wants them."""
    weights, biases = [], []
    for layer in range(rnn.num_layers):
        inputs, recurrent, bias, other = (getattr(rnn, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        weights.append(torch.cat([inputs, recurrent], 1).t().contiguous())
        biases.append(bias + other)
    return weights, biases


def transposed(linear):
    return linear.weight.t().contiguous(), linear.bias


def pack(ids):
    """Return token ids padded to the longest, and their lengths."""
    return pad_sequence([torch.tensor(i) for i in ids], batch_first=True), torch.tensor([len(i) for i in ids])


class LanguageModel:
    def __init__(self, module, config, directory, jit, packed):
        self.module, self.packed = module, packed
        self.weights, self.biases = fused(module.rnn)
        self.out = transposed(module.out)
        self.generate = torch.jit.script(decoding.generate) if jit else decoding.generate
        self.alone = torch.jit.script(decoding.read) if jit else decoding.read
        self.loop = packed and self.loop_is_quicker()

    def loop_is_quicker(self):
        """Tell whether one text is read faster by a loop over its bytes than by PyTorch's own LSTM: small models are."""
        x, lengths = self.module.embed(torch.zeros(1, 60, dtype=torch.long)), torch.tensor([60])
        ways = [lambda: self.alone(x, self.weights, self.biases), lambda: self.sequence(x, lengths)]
        least = [float("inf")] * len(ways)
        with torch.inference_mode():
            for _ in range(6):
                for i, way in enumerate(ways):
                    begin = time.perf_counter()
                    way()
                    least[i] = min(least[i], time.perf_counter() - begin)
        return least[0] < least[1]

    def sequence(self, x, lengths):
        return self.module.rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))[1]

    def __call__(self, requests):
        texts = [r["input"].encode() for r in requests]
        ids, lengths = pack([list(t) for t in texts])
        x = self.module.embed(ids)
        if self.loop and len(texts) == 1:
            h, c = self.alone(x, self.weights, self.biases)
        elif self.packed:
            h, c = self.sequence(x, lengths)
        else:
            h, c = self.stepwise(x, lengths)
        limit = torch.tensor([r.get("max_tokens") or DEFAULT_TOKENS for r in requests])
        first = torch.addmm(self.out[1], h[-1], self.out[0]).argmax(1)
        tokens = self.generate(first, list(h), list(c), limit, self.module.embed.weight, self.weights, self.biases, *self.out)
        rows = zip(texts, limit.tolist(), tokens.tolist())
        return [
            {"text": bytes(row[:n]).decode(errors="replace"), "input_tokens": len(text), "output_tokens": n} for text, n, row in rows
        ]

    def stepwise(self, x, lengths):
        """Run over padded inputs and keep each row's state where its text ends."""
        layers, size = len(self.weights), self.module.rnn.hidden_size
        h = [torch.zeros(len(x), size) for _ in range(layers)]
        c = [torch.zeros(len(x), size) for _ in range(layers)]
        last = [torch.zeros(2, len(x), size) for _ in range(layers)]
        for n in range(x.size(1)):
            y, ends = x[:, n], lengths == n + 1
            for layer in range(layers):
                h[layer], c[layer] = decoding.cell(y, h[layer], c[layer], self.weights[layer], self.biases[layer])
                y = h[layer]
                last[layer][0][ends], last[layer][1][ends] = h[layer][ends], c[layer][ends]
        return torch.stack([s[0] for s in last]), torch.stack([s[1] for s in last])


class Seq2Seq:
    def __init__(self, module, config, directory, jit, packed):
        self.module, self.config = module, config
        source = json.loads((directory / config["source_tokenizer"]["vocab"]).read_text())
        self.source = {word: i for i, word in enumerate(source)}
        self.target = json.loads((directory / config["target_tokenizer"]["vocab"]).read_text())
        (weight,), (bias,) = fused(module.decoder)
        self.decoder = (module.tgt_embed.weight, weight, bias, module.attn.weight.t().contiguous(), *transposed(module.combine), *transposed(module.out))
        self.translate = torch.jit.script(decoding.translate) if jit else decoding.translate

    def __call__(self, requests):
        words = [[[self.source[letter] for letter in word] for word in r["input"].lower().split()] for r in requests]
        ids, lengths = pack([word for request in words for word in request])
        x = pack_padded_sequence(self.module.src_embed(ids), lengths, batch_first=True, enforce_sorted=False)
        memory, (h, c) = self.module.encoder(x)
        memory, _ = pad_packed_sequence(memory, batch_first=True)
        h = torch.tanh(self.module.bridge_h(self.module.by_layer(h)))[0]
        c = self.module.bridge_c(self.module.by_layer(c))[0]
        hidden = torch.arange(memory.size(1)) >= lengths[:, None]
        end = self.config["eos_token_id"]
        rows = self.translate(h, c, memory, hidden, self.config["max_target_length"], self.config["bos_token_id"], end, *self.decoder)
        rows = iter(rows.tolist())
        answers = []
        for request in words:
            targets = [self.cut(next(rows), end) for _ in request]
            text = self.config["target_tokenizer"]["segment_separator"].join(" ".join(self.target[t] for t in row) for row in targets)
            read, written = sum(map(len, request)), sum(map(len, targets))
            answers.append({"text": text, "input_tokens": read, "output_tokens": written})
        return answers

    @staticmethod
    def cut(row, end):
        return row[: row.index(end)] if end in row else row


class Classifier:
    def __init__(self, module, config, directory, jit, packed):
        self.module, self.labels, self.packed = module, config["labels"], packed

    def __call__(self, requests):
        texts = [r["input"].encode() for r in requests]
        ids, lengths = pack([list(t) for t in texts])
        x = self.module.embed(ids)
        if self.packed:
            y = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            for i, layer in enumerate(self.module.layers):
                below = y.data
                y, _ = layer(y)
                if self.module.residual and i:
                    y = PackedSequence(y.data + below, y.batch_sizes, y.sorted_indices, y.unsorted_indices)
            x, _ = pad_packed_sequence(y, batch_first=True)
        else:  # what comes after a text does not reach it
            for i, layer in enumerate(self.module.layers):
                y, _ = layer(x)
                x = y + x if self.module.residual and i else y
            x = x.masked_fill((torch.arange(x.size(1)) >= lengths[:, None]).unsqueeze(2), 0)
        best = self.module.classifier(x.sum(1) / lengths[:, None]).argmax(1).tolist()
        return [{"label": self.labels[b], "input_tokens": len(t), "output_tokens": 0} for t, b in zip(texts, best)]


class Tree:
    def __init__(self, module, config, directory, jit, packed):
        self.module = module
        words = json.loads((directory / config["tokenizer"]["vocab"]).read_text())
        self.words = words if isinstance(words, dict) else {word: i for i, word in enumerate(words)}

    def __call__(self, requests):
        """Run all leaves at once, then all nodes of a height at once, whatever tree they are of."""
        leaves, levels, roots, sizes = [], [], [], []
        for r in requests:
            before = len(leaves)
            roots.append(self.read(r["input"].split(), leaves, levels))
            sizes.append(2 * (len(leaves) - before) - 1)
        starts = [0, len(leaves)]  # where each height's states begin
        for level in levels:
            starts.append(starts[-1] + len(level))
        h = torch.empty(starts[-1], self.module.embed.embedding_dim)
        c = torch.empty_like(h)
        h[: len(leaves)], c[: len(leaves)] = self.module.leaf_state(torch.tensor(leaves))
        for height, level in enumerate(levels):
            children = torch.tensor([[starts[a] + i, starts[b] + j] for (a, i), (b, j) in level])
            left, right = children.unbind(1)
            begin, end = starts[height + 1], starts[height + 2]
            h[begin:end], c[begin:end] = self.module.node_state((h[left], c[left]), (h[right], c[right]))
        tops = torch.tensor([starts[height] + i for height, i in roots])
        best = self.module.classifier(h[tops]).argmax(1).tolist()
        return [{"label": str(b), "input_tokens": n, "output_tokens": 0} for b, n in zip(best, sizes)]

    def read(self, symbols, leaves, levels):
        """Add a tree's nodes to those of the batch, and return its root: its height and its number there."""
        stack = []
        for symbol in symbols:
            if symbol == "(":
                continue
            if symbol != ")":
                stack.append((0, len(leaves)))
                leaves.append(self.words[symbol])
                continue
            right, left = stack.pop(), stack.pop()
            height = max(left[0], right[0]) + 1
            if height > len(levels):
                levels.append([])
            stack.append((height, len(levels[height - 1])))
            levels[height - 1].append((left, right))
        (root,) = stack
        return root


PREDICTORS = {"rnn_lm": LanguageModel, "rnn_seq2seq": Seq2Seq, "rnn_classifier": Classifier, "tree_lstm": Tree}

"""The model families as PyTorch modules.

Each takes the keys of its config.json as arguments, ignores those that are no sizes, and has its parameters under the
names that cellmq reads, so that state_dict() exports as it is. docs/models.md shows the same text and says what each key
means. Train these, or give your own module the same parameters: names and shapes are all that counts.
"""

import torch
import torch.nn as nn

RNN = {"lstm": nn.LSTM, "gru": nn.GRU}


class LanguageModel(nn.Module):
    def __init__(self, cell, vocab_size, embedding_size, hidden_size, num_layers, **_):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, embedding_size)
        self.rnn = RNN[cell](embedding_size, hidden_size, num_layers, batch_first=True)
        self.out = nn.Linear(hidden_size, vocab_size)

    def forward(self, ids, state=None):  # ids: batch x length; the state before a text is zero
        y, state = self.rnn(self.embed(ids), state)
        return self.out(y), state


class Seq2Seq(nn.Module):
    def __init__(self, cell, num_layers, embedding_size, encoder_hidden_size, decoder_hidden_size, source_vocab_size,
                 target_vocab_size, bidirectional_encoder=False, attention="none", **_):
        super().__init__()
        self.lstm, self.bidirectional, self.attention = cell == "lstm", bidirectional_encoder, attention == "luong_general"
        memory = encoder_hidden_size * (2 if bidirectional_encoder else 1)
        self.src_embed = nn.Embedding(source_vocab_size, embedding_size)
        self.tgt_embed = nn.Embedding(target_vocab_size, embedding_size)
        self.encoder = RNN[cell](embedding_size, encoder_hidden_size, num_layers, batch_first=True,
                                 bidirectional=bidirectional_encoder)
        self.decoder = RNN[cell](embedding_size, decoder_hidden_size, num_layers, batch_first=True)
        self.bridge_h = nn.Linear(memory, decoder_hidden_size)
        if self.lstm:
            self.bridge_c = nn.Linear(memory, decoder_hidden_size)
        if self.attention:
            self.attn = nn.Linear(decoder_hidden_size, memory, bias=False)
            self.combine = nn.Linear(decoder_hidden_size + memory, decoder_hidden_size)
        self.out = nn.Linear(decoder_hidden_size, target_vocab_size)

    def by_layer(self, s):  # the last states of both directions side by side
        return torch.cat([s[0::2], s[1::2]], dim=-1) if self.bidirectional else s

    def encode(self, source):  # batch x length
        memory, last = self.encoder(self.src_embed(source))
        if not self.lstm:
            return memory, torch.tanh(self.bridge_h(self.by_layer(last)))
        h, c = last
        return memory, (torch.tanh(self.bridge_h(self.by_layer(h))), self.bridge_c(self.by_layer(c)))

    def step(self, token, state, memory):  # token: batch x 1
        y, state = self.decoder(self.tgt_embed(token), state)
        if self.attention:
            weights = torch.softmax(self.attn(y) @ memory.transpose(1, 2), dim=-1)
            y = torch.tanh(self.combine(torch.cat([y, weights @ memory], dim=-1)))
        return self.out(y), state


class Classifier(nn.Module):
    def __init__(self, cell, vocab_size, embedding_size, hidden_size, num_layers, labels, residual=False, ramps=0, **_):
        super().__init__()
        self.residual = residual
        self.embed = nn.Embedding(vocab_size, embedding_size)
        self.layers = nn.ModuleList(RNN[cell](hidden_size if i else embedding_size, hidden_size, batch_first=True)
                                    for i in range(num_layers))
        self.ramps = nn.ModuleList(nn.Linear(hidden_size, len(labels)) for _ in range(ramps))
        self.classifier = nn.Linear(hidden_size, len(labels))

    def forward(self, ids):  # batch x length; the logits of each ramp and, last, of the classifier
        x, logits = self.embed(ids), []
        for i, layer in enumerate(self.layers):
            y, _ = layer(x)
            x = y + x if self.residual and i else y
            if i < len(self.ramps):
                ramp = self.ramps[i]
                logits.append(ramp(x.mean(dim=1)))
        return logits + [self.classifier(x.mean(dim=1))]


class Tree(nn.Module):
    def __init__(self, vocab_size, hidden_size, num_labels, **_):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, hidden_size)
        self.leaf = nn.Linear(hidden_size, 3 * hidden_size)
        self.node = nn.Linear(2 * hidden_size, 5 * hidden_size)
        self.classifier = nn.Linear(hidden_size, num_labels)

    def leaf_state(self, token):
        i, o, u = self.leaf(self.embed(token)).chunk(3, dim=-1)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c

    def node_state(self, left, right):
        (hl, cl), (hr, cr) = left, right
        i, o, u, fl, fr = self.node(torch.cat([hl, hr], dim=-1)).chunk(5, dim=-1)
        c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(fl) * cl + torch.sigmoid(fr) * cr
        return torch.sigmoid(o) * torch.tanh(c), c


FAMILIES = {"rnn_lm": LanguageModel, "rnn_seq2seq": Seq2Seq, "rnn_classifier": Classifier, "tree_lstm": Tree}


def build(config):
    """Return a new module of the family that a config.json names, with random weights."""
    family = FAMILIES.get(config.get("model_type"))
    if family is None:
        raise ValueError(f"model_type: {config.get('model_type')!r}, one of {', '.join(FAMILIES)} wanted")
    try:
        return family(**config)
    except TypeError as error:  # a key is missing or of another type
        raise ValueError(f"config.json: {error}") from error
    except KeyError as error:
        raise ValueError(f"cell: {error.args[0]!r}, one of {', '.join(RNN)} wanted") from error

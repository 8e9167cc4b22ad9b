"""Greedy generation for a batch, written so that TorchScript can compile it.

A batch lives until its last row has ended. Rows that have ended are dropped once half of those left have, which costs a
copy of the states and saves the work on the others.
"""

from typing import List, Tuple

import torch
from torch import Tensor


def cell(x: Tensor, h: Tensor, c: Tensor, weight: Tensor, bias: Tensor) -> Tuple[Tensor, Tensor]:
    """One step of an LSTM whose two matrices stand side by side, transposed: one product for all gates."""
    i, f, g, o = torch.addmm(bias, torch.cat([x, h], 1), weight).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def read(x: Tensor, weights: List[Tensor], biases: List[Tensor]) -> Tuple[List[Tensor], List[Tensor]]:
    """Run over inputs of equal length, rows x length x width, and return the states of each layer at their end."""
    size = weights[0].size(1) // 4
    h = [torch.zeros([x.size(0), size]) for _ in weights]
    c = [torch.zeros([x.size(0), size]) for _ in weights]
    for n in range(x.size(1)):
        y = x[:, n]
        for layer in range(len(h)):
            h[layer], c[layer] = cell(y, h[layer], c[layer], weights[layer], biases[layer])
            y = h[layer]
    return h, c


def generate(token: Tensor, h: List[Tensor], c: List[Tensor], limit: Tensor, embed: Tensor, weights: List[Tensor],
             biases: List[Tensor], out_weight: Tensor, out_bias: Tensor) -> Tensor:
    """Continue texts: rows x the largest limit, of which each row's first limit tokens count. token is the first."""
    longest = int(limit.max())
    result = torch.zeros([limit.size(0), longest], dtype=torch.long)
    rows = torch.arange(limit.size(0))
    for n in range(longest):
        result[rows, n] = token
        live = limit[rows] > n + 1
        left = int(live.sum())
        if left == 0:
            break
        if 2 * left <= rows.size(0):
            keep = live.nonzero().flatten()
            rows, token = rows[keep], token[keep]
            for layer in range(len(h)):
                h[layer], c[layer] = h[layer][keep], c[layer][keep]
        x = torch.embedding(embed, token)
        for layer in range(len(h)):
            h[layer], c[layer] = cell(x, h[layer], c[layer], weights[layer], biases[layer])
            x = h[layer]
        token = torch.addmm(out_bias, x, out_weight).argmax(1)
    return result


def translate(h: Tensor, c: Tensor, memory: Tensor, hidden: Tensor, longest: int, begin: int, end: int, embed: Tensor,
              weight: Tensor, bias: Tensor, attn: Tensor, combine: Tensor, combine_bias: Tensor, out_weight: Tensor,
              out_bias: Tensor) -> Tensor:
    """Write a target for each source: rows x at most longest, with end from a row's end on.

    memory is rows x length x width; hidden is true where it is padding.
    """
    result = torch.full([h.size(0), longest], end, dtype=torch.long)
    rows = torch.arange(h.size(0))
    token = torch.full([h.size(0)], begin, dtype=torch.long)
    live = torch.ones([h.size(0)], dtype=torch.bool)
    for n in range(longest):
        h, c = cell(torch.embedding(embed, token), h, c, weight, bias)
        scores = torch.bmm(memory, torch.mm(h, attn).unsqueeze(2)).squeeze(2).masked_fill(hidden, float("-inf"))
        context = torch.bmm(torch.softmax(scores, 1).unsqueeze(1), memory).squeeze(1)
        y = torch.tanh(torch.addmm(combine_bias, torch.cat([h, context], 1), combine))
        token = torch.addmm(out_bias, y, out_weight).argmax(1)
        live = live & (token != end)
        left = int(live.sum())
        if left == 0:
            break
        token = token.masked_fill(~live, end)
        result[rows, n] = token
        if 2 * left <= rows.size(0):
            keep = live.nonzero().flatten()
            rows, token, live, h, c = rows[keep], token[keep], live[keep], h[keep], c[keep]
            memory, hidden = memory[keep], hidden[keep]
    return result

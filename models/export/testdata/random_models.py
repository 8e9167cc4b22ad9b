"""Write models of every family with random sizes and weights: random_models.py SEED DIRECTORY.

Some go through the command line, the others through the function. Prints what was left out.
"""

import json
import pathlib
import random
import shutil
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import export
import families

DTYPES = ["f32", "f16", "bf16"]
INPUTS = 8
LAYERS = [1, 2, 3, 4]


def sizes(rng):
    return rng.choice([1, 2, 3, 7, 8, 16, 17, rng.randint(20, 70)])


def words(rng, n):
    letters = "abcdefghijklmnopqrstuvwxyzäß東🌳"
    found = list(letters[:n])
    while len(found) < n:
        word = "".join(rng.choices(letters, k=rng.randint(2, 6)))
        if word not in found:
            found.append(word)
    rng.shuffle(found)
    return found


def tokenizer(rng, size, side):
    """Return a tokenizer's entry for a vocabulary of that size, its file if it has one, and what makes a random text."""
    kind = rng.choice(["ids", "characters", "words"] + (["bytes"] if size >= 256 else []))
    if kind == "bytes":
        return kind, {}, lambda: rng.choice(["a tree", "Bäume", "東京", "x"]) * rng.randint(1, 3)
    if kind == "ids":
        return kind, {}, lambda: " ".join(str(rng.randrange(size)) for _ in range(rng.randint(1, 12)))
    vocabulary, file = words(rng, size), side + "vocab.json"
    entry = {"type": kind, "vocab": file}
    if kind == "characters":
        letters = [w for w in vocabulary if len(w) == 1]
        entry["lowercase"] = rng.random() < 0.5
        return entry, {file: vocabulary}, lambda: "".join(rng.choices(letters, k=rng.randint(1, 12)))
    entry["separator"] = rng.choice([" ", "|", " - "])
    return entry, {file: vocabulary}, lambda: entry["separator"].join(rng.choices(vocabulary, k=rng.randint(1, 12)))


def language(rng, cell):
    vocab = rng.choice([2, 31, 256, 259])
    entry, files, text = tokenizer(rng, vocab, "")
    config = {"model_type": "rnn_lm", "cell": cell, "vocab_size": vocab, "embedding_size": sizes(rng),
              "hidden_size": sizes(rng), "num_layers": rng.choice(LAYERS), "tokenizer": entry}
    if rng.random() < 0.5:
        config["eos_token_id"] = vocab - 1
    if rng.random() < 0.5:
        config.update(embedding_size=config["hidden_size"], tie_word_embeddings=True)
    return config, files, text, vocab


def translator(rng, cell):
    source, target = rng.randint(2, 40), rng.randint(3, 40)
    entry, files, text = tokenizer(rng, source, "source_")
    target_entry, target_files, _ = tokenizer(rng, target, "target_")
    config = {"model_type": "rnn_seq2seq", "cell": cell, "num_layers": rng.choice(LAYERS),
              "bidirectional_encoder": rng.random() < 0.5, "attention": rng.choice(["none", "luong_general"]),
              "embedding_size": sizes(rng), "encoder_hidden_size": sizes(rng), "decoder_hidden_size": sizes(rng),
              "source_vocab_size": source, "target_vocab_size": target, "bos_token_id": 1, "eos_token_id": 2,
              "max_target_length": rng.randint(1, 20), "source_tokenizer": entry, "target_tokenizer": target_entry}
    if isinstance(entry, dict) and entry["type"] == "characters":
        config["segment"] = "whitespace"
        word, text = text, lambda: " ".join(word() for _ in range(rng.randint(1, 3)))
        if isinstance(target_entry, dict):
            target_entry["segment_separator"] = " | "
    return config, {**files, **target_files}, text, source


def classifier(rng, cell):
    vocab, layers = rng.choice([1, 31, 256]), rng.randint(1, 5)
    entry, files, text = tokenizer(rng, vocab, "")
    config = {"model_type": "rnn_classifier", "cell": cell, "vocab_size": vocab, "embedding_size": sizes(rng),
              "hidden_size": sizes(rng), "num_layers": layers, "ramps": rng.randint(0, layers - 1),
              "residual": rng.random() < 0.5, "labels": words(rng, rng.randint(1, 9)), "tokenizer": entry}
    return config, files, text, vocab


def tree(rng, _):
    vocabulary = words(rng, rng.randint(1, 20))

    def text(leaves=None):
        leaves = leaves or rng.randint(1, 20)
        if leaves == 1:
            return rng.choice(vocabulary)
        left = rng.randint(1, leaves - 1)
        return f"( {text(left)} {text(leaves - left)} )"

    config = {"model_type": "tree_lstm", "vocab_size": len(vocabulary), "hidden_size": sizes(rng), "num_labels": rng.randint(1, 9)}
    return config, {"vocab.json": vocabulary}, text, 0


def make(rng, directory, family, cell, dtype):
    """Write a model, another one as long as all inputs are left out: the tiniest may have no clear answer to any."""
    write(rng, directory, family, cell, dtype)
    while not (directory / "golden.jsonl").read_bytes():
        shutil.rmtree(directory)
        write(rng, directory, family, cell, dtype)


def write(rng, directory, family, cell, dtype):
    config, files, text, ids = family(rng, cell)
    state = {name: 2 * tensor for name, tensor in families.build(config).state_dict().items()}
    if config.get("tie_word_embeddings"):
        state["out.weight"] = state["embed.weight"]
    inputs = [text() for _ in range(INPUTS)]
    if rng.random() < 0.5:  # by the command line, which reads texts only
        directory.mkdir(parents=True)
        for name, content in {"config.json": config, **files}.items():
            (directory / name).write_text(json.dumps(content), encoding="utf-8")
        at = directory.parent / f".{directory.name}"
        torch.save(state, at.with_suffix(".pt"))
        at.with_suffix(".txt").write_text("".join(line + "\n" for line in inputs), encoding="utf-8")
        if export.main(["write", str(directory), str(at.with_suffix(".pt")), "--dtype", dtype, "--inputs", str(at.with_suffix(".txt"))]):
            raise SystemExit(f"{directory}: not written")
        return
    if ids:
        inputs += [[rng.randrange(ids) for _ in range(rng.randint(1, 12))] for _ in range(INPUTS)]
    left_out = export.export(directory, config, state, files, inputs, dtype)
    print(directory.name, len(inputs) - len(left_out), "golden outputs,", len(left_out), "left out")


def main(seed, directory):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    for family in (language, translator, classifier, tree):
        for i in range(2 * len(DTYPES)):
            cell, dtype = ["lstm", "gru"][i % 2], DTYPES[i // 2]
            make(rng, pathlib.Path(directory) / f"{family.__name__}-{cell}-{dtype}", family, cell, dtype)


main(int(sys.argv[1]), sys.argv[2])

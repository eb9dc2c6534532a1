"""Pretrained encoders: where they are found, what is read of them, and pairs by plain loops."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="encoders need torch (extra `torch`)")
transformers = pytest.importorskip("transformers", reason="needs transformers (extra `torch`)")
tokenizers = pytest.importorskip("tokenizers", reason="comes with transformers")

from saccade.data.encoders import ENCODERS, find_encoder  # noqa: E402
from saccade.data.topic_model import OVERLAPS  # noqa: E402
from saccade.errors import ConfigError, FileError  # noqa: E402
from saccade.models.pretrained_encoders import load_encoder, random_encoder, topic_pairs  # noqa: E402
from saccade.watch.capture import Capture, looks_like_attention  # noqa: E402

torch.set_num_threads(1)
WORDS = ["river", "boat", "song", "album", "the", "is", "a"]
ARTICLES = [
    ["=", "River", "=", "the", "boat", "is", "a", "boat", "songbook", "song", "<unk>"],
    ["the", "album", "is", "a", "song", "river"],
]
LISTS = (("river", "boat", "songbook"), ("song", "album"))
SETTINGS = {(overlap, 0.001): LISTS for overlap in OVERLAPS}
SIZES: Any = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8}
SIZES |= {"intermediate_size": 16, "max_position_embeddings": 32}
FAMILIES = {
    "bert": ("BertConfig", "BertModel", SIZES),
    "electra": ("ElectraConfig", "ElectraModel", SIZES | {"embedding_size": 8}),
    "albert": ("AlbertConfig", "AlbertModel", SIZES | {"embedding_size": 4}),
    "roberta": ("RobertaConfig", "RobertaModel", SIZES | {"max_position_embeddings": 40}),
    "bart": (
        "BartConfig",
        "BartModel",
        {
            "d_model": 8,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 16,
            "decoder_ffn_dim": 16,
            "max_position_embeddings": 32,
        },
    ),
}


def saved(folder: Path, family: str) -> str:
    """A tiny encoder with random weights and a tokeniser of word pieces, as a folder."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##book", "="]
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({one: at for at, one in enumerate(pieces)}, unk_token="[UNK]")
    )
    inner.normalizer = tokenizers.normalizers.Lowercase()
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
    special |= {"cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokeniser = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **special)
    tokeniser.save_pretrained(folder)
    config, model, sizes = FAMILIES[family]
    torch.manual_seed(2)
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    made = getattr(transformers, config)(vocab_size=len(pieces), **ids, **sizes)
    network = getattr(transformers, model)(made)
    with torch.no_grad():
        for weights in network.parameters():
            if weights.ndim >= 2:
                weights.mul_(20)  # so that attention is far from uniform
    network.save_pretrained(folder)
    return str(folder)


def place_of(folder: Path, family: str) -> Any:
    return find_encoder(f"mine={saved(folder, family)}")


@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_are_those_of_plain_loops(tmp_path, family):
    encoder = load_encoder(place_of(tmp_path, family))
    found = topic_pairs(encoder, ARTICLES, SETTINGS, pieces=16)
    assert found.sizes["layer"] == found.sizes["head"] == 2
    sums, counts = np.zeros((2, 2, 2)), np.zeros(2)
    for article in ARTICLES:
        ids, words = encoder.encoded(article, 16)
        weights = captured(encoder.model, ids)
        for query, key in itertools.product(range(len(ids)), repeat=2):
            topics = [[one for one in LISTS if words[at] in one] for at in (query, key)]
            if not all(topics) or words[query] == words[key]:
                continue
            kind = int(topics[0] != topics[1])
            sums[..., kind] += weights[:, :, query, key]
            counts[kind] += 1
    measured = found["topic_attention"].sel(overlap="disjoint").isel(threshold=0)
    assert np.allclose(measured.transpose("layer", "head", "pair"), sums / counts, rtol=1e-4)
    assert found["topic_places"].isel(overlap=0, threshold=0).values.tolist() == counts.tolist()


def captured(model: Any, ids: list[int]) -> np.ndarray:
    """Attention of one text as saccade.watch sees it from outside: [layer, head, query, key]."""
    body = model.get_encoder() if model.config.is_encoder_decoder else model
    with torch.no_grad(), Capture(body, looks_like_attention, False) as capture:
        body(input_ids=torch.tensor([ids]))
    layers = []
    for call in capture.calls:
        rows = call.rows(torch.arange(len(ids)), torch.float32)
        scores = rows.scores.masked_fill(~rows.visible, -torch.inf)
        layers.append(torch.softmax(scores, dim=-1)[0].numpy())
    return np.stack(layers)


def test_split_words_and_unknown_ones_have_no_topic(tmp_path):
    encoder = load_encoder(place_of(tmp_path, "bert"))
    ids, words = encoder.encoded(ARTICLES[0], 32)
    assert words == ["", "river", "the", "boat", "is", "a", "boat", "", "", "song", "", ""]
    assert ids[0] == 2
    assert ids[-1] == 3
    assert encoder.alone(["river", "songbook", "whale"]) == {"river": 5}
    assert len(encoder.encoded(ARTICLES[0], 6)[0]) == 6


def test_embeddings_are_the_rows_of_words_of_one_piece(tmp_path):
    encoder = load_encoder(place_of(tmp_path, "albert"))
    found = topic_pairs(encoder, ARTICLES, SETTINGS)["topic_dot"].isel(overlap=0, threshold=0)
    rows = {word: encoder.embedding[5 + at].numpy() for at, word in enumerate(WORDS)}
    same = [rows["river"] @ rows["boat"], rows["song"] @ rows["album"]]
    other = [rows[one] @ rows[two] for one in LISTS[0][:2] for two in LISTS[1]]
    assert np.allclose(found, [np.mean(same), np.mean(other)], rtol=1e-4)


def test_padding_changes_nothing(tmp_path):
    encoder = load_encoder(place_of(tmp_path, "bert"))
    alone, together = (topic_pairs(encoder, ARTICLES, SETTINGS, batch_size=n) for n in (1, 2))
    for name in alone.data_vars:
        assert np.allclose(alone[name], together[name], rtol=1e-4), name


def test_random_weights_depend_on_the_seed_alone():
    one, again, other = (random_encoder(WORDS, seed, **SIZES) for seed in (0, 0, 1))
    assert torch.equal(one.embedding, again.embedding)
    assert not torch.equal(one.embedding, other.embedding)
    ids, words = one.encoded(ARTICLES[0], 32)
    assert words[1:5] == ["river", "the", "boat", "is"]
    assert ids[-2] == 1, "an unknown word"


def test_weights_of_onnx_are_those_of_the_model(tmp_path):
    onnx = pytest.importorskip("onnx", reason="reading ONNX needs onnx")
    place = place_of(tmp_path, "bert")
    expected = load_encoder(place)
    state = {k: v.numpy() for k, v in expected.model.state_dict().items() if "pooler" not in k}
    stored, nodes = [], []
    for name, values in state.items():
        if values.ndim == 2 and "embeddings" not in name:
            hidden = f"onnx::MatMul_{len(stored)}"
            stored.append(onnx.numpy_helper.from_array(values.T.copy(), hidden))
            path = "/" + name.removesuffix(".weight").replace(".", "/") + "/MatMul"
            path = path.replace("/layer/", "/layer.")
            nodes.append(onnx.helper.make_node("MatMul", ["x", hidden], ["y"], path))
        else:
            stored.append(onnx.numpy_helper.from_array(values.copy(), name))
    graph = onnx.helper.make_graph(nodes, "bert", [], [], stored)
    (tmp_path / "onnx").mkdir()
    onnx.save(onnx.helper.make_model(graph), str(tmp_path / "onnx" / "model.onnx"))
    (tmp_path / "model.safetensors").unlink()
    found = load_encoder(find_encoder(str(tmp_path)))
    for name, values in found.model.state_dict().items():
        assert np.array_equal(values.numpy(), state[name]), name
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "electra"}))
    with pytest.raises(FileError, match="type electra, allowed: bert"):
        load_encoder(find_encoder(str(tmp_path)))


def test_an_encoder_is_found_by_name_folder_and_hub(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "data"))
    assert find_encoder("bert").path == ENCODERS["bert"].hub
    folder = tmp_path / "data" / "encoders" / "bert"
    saved(folder, "bert")
    place = find_encoder("bert")
    assert (place.path, place.is_folder, place.title) == (str(folder), True, "BERT")
    assert place.digest == find_encoder(f"other={folder}").digest
    assert find_encoder(str(folder)).name == "bert"
    hub = find_encoder("owner/My-Model")
    assert (hub.name, hub.path, hub.is_folder) == ("my_model", "owner/My-Model", False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nothing", "encoders: got 'nothing', allowed: bert, albert"),
        ("a b=owner/name", "encoders: got the name 'a b', allowed: letters"),
    ],
)
def test_a_wrong_encoder_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        find_encoder(given)


def test_an_encoder_that_the_hub_does_not_give_is_named_with_what_to_do(monkeypatch):
    def read(self: Any, kind: Any, **options: Any) -> Any:
        raise FileError(f"{self.title}: cannot be read: no connection")

    monkeypatch.setattr("saccade.models.pretrained_encoders.Checkpoint.read", read)
    with pytest.raises(FileError) as refused:
        load_encoder(find_encoder("bart=facebook/bart-base"))
    assert str(refused.value) == (
        "facebook/bart-base, revision main: cannot be read: no connection; or put its files into "
        "encoders/bart below the folder of corpora, or give bart=FOLDER"
    )


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(FileError, match="allowed: a folder with config"):
        find_encoder(str(tmp_path))

"""The corpora that are known by name: sources, licences, citations, sizes and sums.

The sums are those of the files from which they were computed. A corpus that could not be had when
this was written has none; it is read in the format in which it is published, and its sizes are
checked where they are fixed.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from saccade.contracts.task import SPLITS
from saccade.data import corpora
from saccade.data.corpora import KnownCorpus, Source
from saccade.errors import ConfigError

_GITHUB = "https://raw.githubusercontent.com"
_LU = f"{_GITHUB}/haoyelyu/On_the_Dynamics_of_Training_Attention_Models"
_SST = f"{_LU}/d1f4cba20b75094ec7b81e55a8a63d3dc9b2aff6/data/sst_data"
_MULTI30K = f"{_GITHUB}/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw"
_YELP = f"{_GITHUB}/RWooters/Textclassifier/5aa7c2f5237f245feaae5f45f70991b3a53e17f8"
_TATOEBA = f"{_GITHUB}/rioyshky/translation/de48b7027f7318d77010a6e08ed928c10748c23d"
_IMDB = "https://ai.stanford.edu/~amaas/data/sentiment"
_NEWSGROUPS = "https://ndownloader.figshare.com/files/5975967"
_RESEARCH = "research release, no licence stated"
_AG_NEWS = "free for research, not commercial"
_ZHANG = "Zhang, Zhao & LeCun 2015, Character-level convolutional networks for text, NeurIPS"
VALID = ("train", "valid", "test")
"""Splits, as files name them."""


def _sst(name: str, title: str, file: str, sizes: Sequence[int], *sums: str) -> KnownCorpus:
    parts = ("train", "dev", "test")
    checksum, *of_files = sums
    sources = (
        Source(f"{_SST}/{name}/stsa.{file}.{part}", sha256)
        for part, sha256 in zip(parts, of_files, strict=True)
    )
    files = {split: f"stsa.{file}.{part}" for split, part in zip(SPLITS, parts, strict=True)}
    return KnownCorpus(
        name,
        title,
        "classification",
        "sst",
        tuple(files.values()),
        corpora.split_lines(files, " "),
        dict(zip(SPLITS, sizes, strict=True)),
        _RESEARCH,
        "Socher et al. 2013, Recursive deep models for semantic compositionality, EMNLP",
        f"put stsa.{file}.train, .dev and .test of Lu 2021's repository there",
        checksum,
        tuple(sources),
    )


def _europarl(pair: str, title: str, train: int, checksum: str) -> KnownCorpus:
    files = {split: f"{pair}.{split}.tsv" for split in SPLITS}
    return KnownCorpus(
        f"europarl_{pair.replace('-', '_')}",
        f"Europarl, {title}, a sample",
        "translation",
        "europarl",
        tuple(files.values()),
        corpora.split_lines(files, "\t"),
        {"train": train, "validation": 2000, "test": 2000},
        "proceedings of the European Parliament, no known restriction",
        "Koehn 2005, Europarl: a parallel corpus for statistical machine translation, MT Summit",
        f"the sample was derived for this project; put {pair}.train.tsv, {pair}.validation.tsv and "
        f"{pair}.test.tsv there",
        checksum,
        note="stands for the News Commentary pairs of Snell 2021",
    )


def _multi30k() -> KnownCorpus:
    parts = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
    sums = {
        "train.en": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
        "train.de": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
        "val.en": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
        "val.de": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
        "test_2016_flickr.en": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
        "test_2016_flickr.de": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    }
    return KnownCorpus(
        "multi30k",
        "Multi30k, task 1, English-German",
        "translation",
        "multi30k",
        tuple(sums),
        corpora.pairs_of_files({split: (f"{one}.en", f"{one}.de") for split, one in parts.items()}),
        {"train": 29000, "validation": 1014, "test": 1000},
        "from Flickr30K: research and education, not commercial",
        "Elliott et al. 2016, Multi30K: multilingual English-German image descriptions, VL",
        "put train, val and test_2016_flickr, .en.gz and .de.gz, of multi30k/dataset there",
        "c5bfe7a51dc7a8cee9b214ca605327793725c851b597aac1f570ceaa4d85b3d0",
        tuple(Source(f"{_MULTI30K}/{name}.gz", sha256) for name, sha256 in sums.items()),
    )


def _csv(
    name: str, title: str, folder: str, sizes: dict[str, int], hand: str, **more: Any
) -> KnownCorpus:
    """A corpus in the format of Zhang et al. 2015: label, title, text."""
    files = {"train": "train.csv", "test": "test.csv"}
    about = (name, title, "classification", folder, tuple(files.values()))
    read = corpora.comma_separated(files, 0, (1, 2))
    return KnownCorpus(*about, read, sizes, by_hand=hand, **more)


def _iwslt14() -> KnownCorpus:
    files = {split: (f"{one}.de", f"{one}.en") for split, one in zip(SPLITS, VALID, strict=True)}
    return KnownCorpus(
        "iwslt14",
        "IWSLT 2014, German-English",
        "translation",
        "iwslt14",
        tuple(name for both in files.values() for name in both),
        corpora.pairs_of_files(files),
        {},
        "CC BY-NC-ND (TED talks)",
        "Cettolo et al. 2014, Report on the 11th IWSLT evaluation campaign, IWSLT",
        "put train, valid and test, .de and .en, there",
    )


def _news_commentary() -> Iterator[KnownCorpus]:
    for pair, title in (
        ("en-nl", "English-Dutch"),
        ("en-pt", "English-Portuguese"),
        ("it-pt", "Italian-Portuguese"),
    ):
        file = f"news-commentary-v14.{pair}.tsv"
        yield KnownCorpus(
            f"news_commentary_{pair.replace('-', '_')}",
            f"News Commentary 14, {title}",
            "translation",
            "news_commentary",
            (file,),
            corpora.split_lines({"train": file}, "\t"),
            {},
            "free for research",
            "Barrault et al. 2019, Findings of the 2019 conference on machine translation, WMT",
            f"put {file} there",
        )


def _wikitext2(name: str, order: str, checksum: str = "", note: str = "") -> KnownCorpus:
    files = {split: f"wiki.{one}.tokens" for split, one in zip(SPLITS, VALID, strict=True)}
    return KnownCorpus(
        name,
        f"WikiText-2, words, {order}",
        "language model",
        "wikitext2",
        tuple(files.values()),
        corpora.running_text(files),
        {"train": 36718, "validation": 3760, "test": 4358},
        "CC BY-SA 3.0",
        "Merity et al. 2016, Pointer sentinel mixture models, arXiv:1609.07843",
        f"put {', '.join(files.values())} there",
        checksum,
        note=note,
    )


_ALL = (
    _sst(
        "sst2",
        "Stanford Sentiment Treebank, two classes",
        "binary",
        (6920, 872, 1821),
        "b5f5948ffa988ab694a30990715f4f67424a9fd3a5bbda0d5395872c233d7f48",
        "71c04bcc41291fa47454dd670df701b14ee9249156babeaac404cfe2c8d74338",
        "02fedc82855dbdcabe82c65ed1af6c6570788eaac51073cdb35ee8c7784426d1",
        "6a80dc9b9a0db2d3b37f2f809304febad31c90ab67a5b4157b7d9f881c53ef5b",
    ),
    _sst(
        "sst5",
        "Stanford Sentiment Treebank, five classes",
        "fine",
        (8544, 1101, 2210),
        "825c581c5c9347e460e6275d513bbf6d01b70b82a5c415268d60ba96b980db89",
        "9b52b5f686ed438d4d0274c385369251b3d579b578fddd340ba8a9bae2ca4bee",
        "b2f76c62b960f9fda5c6d751edb125abab4f878eb94a8754239b7f4af647f4c3",
        "0e2ebb450c231f7b3d67fc932066e7bb26ae7bad8c88488f45ed44ef02eb3c73",
    ),
    KnownCorpus(
        "imdb",
        "Large Movie Review Dataset",
        "classification",
        "imdb",
        ("aclImdb_v1|aclImdb_labeled|aclImdb",),
        corpora.read_imdb,
        {"train": 25000, "test": 25000},
        _RESEARCH,
        "Maas et al. 2011, Learning word vectors for sentiment analysis, ACL",
        "put aclImdb_v1.tar.gz there, or its folder aclImdb",
        "a248e0969d8940f6fc6ca2dc9de6d9b2a30cefc781831105748e85436eaf3d98",
        (Source(f"{_IMDB}/aclImdb_v1.tar.gz"),),
    ),
    KnownCorpus(
        "newsgroups",
        "20 Newsgroups by date, baseball and hockey",
        "classification",
        "newsgroups20",
        ("20news-bydate|20news-bydate_baseball_hockey",),
        corpora.read_newsgroups,
        {"train": 1197, "test": 796},
        "public messages, no licence stated",
        "Lang 1995, Newsweeder: learning to filter netnews, ICML",
        "put 20news-bydate.tar.gz there",
        "38f8582efa75e4083aaff5981b72afe4c199acba094e0216cfa431ae907f94bf",
        (
            Source(
                _NEWSGROUPS,
                "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
                "20news-bydate.tar.gz",
            ),
        ),
        "without the headers of the messages, which name the group",
    ),
    _csv(
        "ag_news",
        "AG's News, the official version",
        "ag_news",
        {"train": 120000, "test": 7600},
        "put train.csv and test.csv of ag_news_csv there",
        licence=_AG_NEWS,
        citation=_ZHANG,
    ),
    KnownCorpus(
        "ag_news_sample",
        "AG's News, 24,144 training texts",
        "classification",
        "ag_news",
        ("derived_train_union.csv", "test.csv"),
        corpora.read_ag_news_sample,
        {"train": 24144, "test": 7600},
        _AG_NEWS,
        _ZHANG,
        "the training texts were derived for this project; put derived_train_union.csv and the "
        "official test.csv there",
        "6c64bd3b794e387b8d19fabc68b0ef6d4e7762877a7f54668e5812e57e632030",
        note="a fifth of the official training texts; the official test set",
    ),
    _csv(
        "yelp",
        "Yelp reviews, polarity, the official version",
        "yelp",
        {"train": 560000, "test": 38000},
        "put train.csv and test.csv of yelp_review_polarity_csv there",
        licence="Yelp dataset licence, academic use",
        citation=_ZHANG,
    ),
    KnownCorpus(
        "yelp_sample",
        "Yelp reviews, 10,000 with stars",
        "classification",
        "yelp",
        ("yelp.csv",),
        corpora.read_yelp,
        {"train": 8539},
        "Yelp dataset licence, academic use",
        "Yelp 2013, dataset challenge",
        "put yelp.csv.zip there",
        "c588efe5f0d52b1c1232437dd3e8520b0deb31db6053bcabf115a626812bf763",
        (
            Source(
                f"{_YELP}/yelp.csv.zip",
                "fc0093d9cdf96e35e1a1b7c3f76297c22959245068c7627ea56bc0891dbd4499",
            ),
        ),
        "1 and 2 stars are negative, 4 and 5 positive, 3 left out; no test set",
    ),
    _csv(
        "amazon",
        "Amazon reviews, polarity",
        "amazon",
        {"train": 3600000, "test": 400000},
        "put train.csv and test.csv of amazon_review_polarity_csv there",
        licence=_RESEARCH,
        citation=_ZHANG,
    ),
    KnownCorpus(
        "sms_spam",
        "SMS Spam Collection",
        "classification",
        "sms_spam",
        ("SMSSpamCollection",),
        corpora.split_lines({"train": "SMSSpamCollection"}, "\t"),
        {"train": 5574},
        "CC BY 4.0",
        "Almeida et al. 2011, Contributions to the study of SMS spam filtering, DocEng",
        "put the file SMSSpamCollection there",
    ),
    _multi30k(),
    KnownCorpus(
        "tatoeba",
        "Tatoeba, German-English, of 2018",
        "translation",
        "tatoeba",
        ("deu-eng",),
        corpora.read_tatoeba,
        {"train": 169813},
        "CC BY 2.0 FR",
        "Tatoeba project, tatoeba.org; pairs of manythings.org/anki",
        "put deu-eng.zip there",
        "942bc6834962cfce1e21bf9ee8777f31c2e717371fab45fd2fe8facf552dce6a",
        (
            Source(
                f"{_TATOEBA}/deu-eng.zip",
                "b7688f84f99fa33c17397c14d8bd9cef1fdeb2ee0bf50074767023aee8926e28",
            ),
        ),
    ),
    _europarl(
        "it-pt",
        "Italian-Portuguese",
        55866,
        "448e92bb1af909ff3bc9a42ab2f52da941fc0e1b1a33319cc87b4fb988f8d26f",
    ),
    _europarl(
        "en-nl",
        "English-Dutch",
        55881,
        "861fb99d9c0932aa1917dc23d7054ec55146716b0fd9515fc328059760b901f6",
    ),
    _europarl(
        "en-pt",
        "English-Portuguese",
        55895,
        "106914e3862d19a723232853daf93ca62504c147d66dcdeae4976beaf6eabaf0",
    ),
    _iwslt14(),
    *_news_commentary(),
    _wikitext2("wikitext2", "the official order"),
    _wikitext2(
        "wikitext2_shuffled",
        "articles in another order",
        "7ffd97ce72b5285b16efec687c4b1d91151629dfd9934bd6f3e473231794e1e9",
        note="the training articles of the copy at hand are shuffled",
    ),
)
CORPORA = {corpus.name: corpus for corpus in _ALL}


def known_corpus(name: str) -> KnownCorpus:
    """The corpus of a name."""
    if name not in CORPORA:
        raise ConfigError(f"corpus: got {name!r}, allowed: {', '.join(CORPORA)}")
    return CORPORA[name]


def require_known(task: Any, kind: str, examples: str) -> None:
    """Refuse the `name` of a corpus for another purpose, and shares of what it has already."""
    corpus = known_corpus(task.name)
    if corpus.kind != kind:
        allowed = f"a corpus of {examples}; 'saccade data list' shows them"
        raise ConfigError(f"name: got {task.name!r}, for {corpus.kind}, allowed: {allowed}")
    for split in SPLITS[1:]:
        share, what = getattr(task, f"{split}_share"), examples.split()[-1]
        if share and split in corpus.sizes:
            why = f"since {task.name} has {what} for it"
            raise ConfigError(f"{split}_share: got {share}, allowed: 0, {why}")


def named_in_records(name: str) -> dict[str, str]:
    """What every record says of a known corpus."""
    corpus = known_corpus(name)
    return {"corpus": corpus.name, "licence": corpus.licence, "citation": corpus.citation}

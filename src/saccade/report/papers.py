"""The papers, in the order of their claims: what each says, and what the records add to it.

A finding is a sentence with the verdicts that it presupposes. `finding_of` gives it only where the
records have exactly these verdicts, so no sentence is shown against its record.
"""

import dataclasses
from collections.abc import Mapping, Sequence

from saccade.judging.bound import Verdict
from saccade.report.judged import AnyStudy, JudgedClaim, StoredStudy


@dataclasses.dataclass(frozen=True)
class Finding:
    """One sentence, as strong as the verdicts that it rests on."""

    text: str
    """Without measured numbers: these are in the record."""
    rests_on: Mapping[str, Verdict]
    """Claim id -> the verdict that the sentence presupposes."""


@dataclasses.dataclass(frozen=True)
class Paper:
    """A paper, or what goes beyond the papers."""

    letter: str
    """With which the ids of its claims begin."""
    citation: str
    title: str
    idea: str
    """What the paper says, in one plain sentence."""
    studies: tuple[str, ...]
    """Names, in the order of the paper."""
    figure: tuple[tuple[str, str], ...]
    """Study and name of the most telling figure, and of others for records without it."""
    findings: tuple[Finding, ...]
    """The most surprising one first."""


PAPERS: tuple[Paper, ...] = (
    Paper(
        "A",
        "Lu, Mao & Nayak 2021",
        "On the dynamics of training attention models",
        "The attention score of a topic word and the norm of its embedding grow together, on one "
        "curve for every classifier, and each promotes the other.",
        ("sen", "sen_synergy", "sen_convolution", "sen_query", "sen_sst"),
        (
            ("sen_query", "sen_query_balance"),
            ("sen", "sen_curves"),
            ("sen_synergy", "sen_synergy_enhancement"),
            ("sen_sst", "sen_sst_curves"),
            ("sen_convolution", "sen_convolution_curves"),
        ),
        (
            Finding(
                "A trained query, which the paper's theorems leave out, grows in balance with the "
                "keys: its initial norm and the scores of all words give its final norm.",
                {"A-13c": "holds", "A-13d": "holds"},
            ),
            Finding(
                "If padding is attended to, as in the authors' code, early stopping ends more runs "
                "of the trained classifier on film reviews (SST-2) before they have learned "
                "anything.",
                {"A-15c": "holds"},
            ),
            Finding(
                "The norm of a topic word follows from its score by corollary 1 in every seed, at "
                "every epoch and for every classifier.",
                {"A-2": "holds", "A-3": "holds"},
            ),
        ),
    ),
    Paper(
        "B",
        "Li, Li & Risteski 2023",
        "How do transformers learn topic structure",
        "A transformer that is trained to fill in hidden words encodes topics in its values, in "
        "its embeddings and in its attention; the values come first.",
        ("topics_optima", "topics_two_stage", "topics_attention", "topics_pretrained"),
        (
            ("topics_two_stage", "topics_two_stage_ways"),
            ("topics_attention", "topics_attention_table_distinct"),
            ("topics_optima", "topics_optima_values"),
            ("topics_pretrained", "topics_pretrained_tables"),
        ),
        (
            Finding(
                "With the squared error SGD trains the values first and attention second in every "
                "seed; the paper says the same of Adam, for which it fails: there the delay of "
                "attention is at most a tenth of SGD's.",
                {"B-9": "holds", "B-9d": "fails", "B-9f": "holds"},
            ),
            Finding(
                "Within the training of the paper's table SGD does not clearly make words attend "
                "to their own topic, nor does it with the inputs of the authors' code; with more "
                "training time they do.",
                {"B-11b": "fails", "B-11c": "holds", "B-11f": "fails"},
            ),
            Finding(
                "The optimal values, embeddings and attention encode topics, as the paper states.",
                {"B-1": "holds", "B-4": "holds", "B-5": "holds"},
            ),
        ),
    ),
    Paper(
        "C",
        "Snell, Zhong, Klein & Steinhardt 2021",
        "Approximating how single head attention learns",
        "A model first learns from co-occurrence which words translate which, while attention is "
        "nearly uniform; attention then goes to the words that it can translate.",
        (
            "ktiw_proxy",
            "ktiw_agreement",
            "ktiw_classification",
            "ktiw_translation",
            "ktiw_copying",
            "ktiw_fate",
            "ktiw_reflection",
            "ktiw_multihead",
            "ktiw_limits",
        ),
        (
            ("ktiw_fate", "ktiw_fate_advantage"),
            ("ktiw_copying", "ktiw_copying_curves"),
            ("ktiw_classification", "ktiw_classification_tables"),
            ("ktiw_translation", "ktiw_translation_tables"),
            ("ktiw_agreement", "ktiw_agreement_curves"),
            ("ktiw_multihead", "ktiw_multihead_budget"),
            ("ktiw_reflection", "ktiw_reflection_fates"),
            ("ktiw_limits", "ktiw_limits_orders"),
            ("ktiw_proxy", "ktiw_proxy_derivative"),
        ),
        (
            Finding(
                "After five steps the sign of the lexical advantage separates the permutation runs "
                "that succeed early from the others; whether it is the cause is open, after two "
                "interventions.",
                {"C-16": "holds", "C-16c": "undetermined", "C-17": "fails"},
            ),
            Finding(
                "After five steps the sign of the lexical advantage separates the permutation runs "
                "that succeed early from the others.",
                {"C-16": "holds"},
            ),
            Finding(
                "Permutations take longer to learn than words of a larger set and fail more often "
                "within the steps of the released code; within those of the text the difference is "
                "not significant.",
                {"C-4b": "fails", "C-4f": "holds", "C-5": "holds"},
            ),
            Finding(
                "On labelled texts attention agrees far more than by chance with what single words "
                "mean to a model of uniform attention.",
                {"C-12": "holds"},
            ),
        ),
    ),
    Paper(
        "D",
        "Song, Han, Zhang, Ding & Hong 2024",
        "Unraveling the gradient descent dynamics of transformers",
        "Gradient descent on a wide enough attention layer converges linearly; if the queries "
        "alone are trained, softmax can stop where a Gaussian kernel goes on.",
        ("kernels_convergence", "kernels_stationary", "kernels_training", "kernels_landscape"),
        (
            ("kernels_stationary", "kernels_stationary_phase"),
            ("kernels_convergence", "kernels_convergence_bounds"),
            ("kernels_training", "kernels_training_accuracy"),
        ),
        (
            Finding(
                "Which kernel is easier to train depends on the initialisation: from a generic one "
                "the Gaussian kernel needs fewer steps at matched curvature, and for large queries "
                "the order reverses.",
                {"D-7": "holds", "D-8b": "holds"},
            ),
            Finding(
                "If the values alone are trained, the spectrum of the initialisation predicts the "
                "whole loss curve, for both kernels.",
                {"D-1b": "holds"},
            ),
            Finding(
                "Without keys the Gaussian kernel reaches zero wherever zero can be reached, and "
                "otherwise ends at the distance of the targets to its reach.",
                {"D-5b": "holds", "D-5c": "holds"},
            ),
        ),
    ),
    Paper(
        "E",
        "Beyond the papers",
        "One order across the papers, and faults of training",
        'Is "values first, attention second" one phenomenon of all four papers, and can the fault '
        "of a run be named from how its attention learns?",
        ("values_first", "diagnosis_errors"),
        (
            ("values_first", "values_first_reversal"),
            ("diagnosis_errors", "diagnosis_confusion"),
        ),
        (
            Finding(
                "Values rise before attention in the models of three papers; but in that of Lu, "
                "with a fixed classifier, the order reverses as the scores grow, at the score that "
                "the paper's own corollary 1 gives.",
                {"E-13": "holds", "E-13e": "holds"},
            ),
            Finding(
                "The diagnosis seldom finds a fault in a healthy run, but it does not name every "
                "planted fault reliably.",
                {"F-2": "holds", "F-7": "fails"},
            ),
        ),
    ),
)


def paper_of(study: AnyStudy) -> Paper | None:
    """The paper of a study by its name; None for studies of other people. A stored study of a
    name that is not known belongs to the paper that it cites, if its claims have that letter.
    """
    for paper in PAPERS:
        if study.name in paper.studies:
            return paper
    if not isinstance(study, StoredStudy):
        return None
    letters = {claim.id.partition("-")[0] for claim in study.claims}
    cited = (one for one in PAPERS if one.citation == study.paper and {one.letter} == letters)
    return next(cited, None)


def finding_of(paper: Paper, rows: Sequence[JudgedClaim]) -> Finding | None:
    """The first finding whose claims all have the verdicts that it presupposes.

    A claim in records of several presets counts with the preset paper or, without it, with the
    first one of the alphabet; several records of this preset must agree. Sweeps and maps, which
    have other settings, do not count.
    """
    found: dict[str, dict[str, set[Verdict]]] = {}
    for row in rows:
        its_paper = None if row.judgement.cells else paper_of(row.study)
        if its_paper is not None and its_paper.letter == paper.letter:
            presets = found.setdefault(row.claim.id, {})
            presets.setdefault(row.record.preset, set()).add(row.judgement.verdict)
    verdicts = {
        claim: presets[min(presets, key=lambda preset: (preset != "paper", preset))]
        for claim, presets in found.items()
    }
    for finding in paper.findings:
        if all(verdicts.get(claim) == {given} for claim, given in finding.rests_on.items()):
            return finding
    return None

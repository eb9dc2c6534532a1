"""Write `reviews.tsv`: 3,000 made-up reviews with a label each, the same every time.

    python reviews.py [FILE]

A review has between 4 and 30 words. One or two of them say whether it is good or bad; "not" before
such a word turns it round. All other words mean nothing.
"""

import random
import sys
from pathlib import Path

GOOD = ["brilliant", "charming", "clever", "delightful", "funny", "moving", "superb", "warm"]
BAD = ["awful", "boring", "clumsy", "dull", "flat", "lifeless", "silly", "tedious"]
FILLERS = [f"word{number}" for number in range(100)]


def review(source: random.Random) -> tuple[str, str]:
    """A label and a text."""
    label = source.choice(("good", "bad"))
    words = source.choices(FILLERS, k=source.randint(3, 26))
    for _ in range(source.randint(1, 2)):
        turned = source.random() < 0.15
        word = source.choice(GOOD if (label == "good") != turned else BAD)
        words.insert(source.randrange(len(words) + 1), f"not {word}" if turned else word)
    return label, " ".join(words)


def main() -> None:
    file = Path(sys.argv[1] if len(sys.argv) > 1 else "reviews.tsv")
    source = random.Random(2021)
    rows = [review(source) for _ in range(3000)]
    file.write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in rows))


if __name__ == "__main__":
    main()

"""The errors that saccade raises on purpose: each is one sentence and has an exit code."""


class SaccadeError(Exception):
    """Something that the user can understand and fix; the command line prints it as one line."""

    exit_code = 1


class ConfigError(SaccadeError):
    """A setting outside what is allowed: names the field, the value got and what is allowed."""

    exit_code = 2


class FileError(SaccadeError):
    """A file that cannot be read or written, or that is not what its name says."""


class InterruptedTrainingError(SaccadeError):
    """Training stopped on request, with its state written."""

    exit_code = 130

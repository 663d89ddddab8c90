"""Jobs from what a user says: a model by name or file, ranks, tokens, batch, and a device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from placement_proofs.cost.convention import convention
from placement_proofs.errors import IllFormed
from placement_proofs.layouts.devices import Machine, load_machine
from placement_proofs.layouts.setting import Job
from placement_proofs.layouts.setups import load_setup
from placement_proofs.models import Shape
from placement_proofs.zoo import load_model


@dataclass(frozen=True)
class Asked:
    """What is said of a job; ``None`` leaves it to the model, the setup or the default.

    Attributes:
        model: a name, a TOML file of shape fields, or a ``config.json``.
        gpus: ranks.
        sequence: tokens of a sequence.
        global_batch: sequences of a training step.
        device, cluster: names or TOML files.
        setup: facts of a training stack (:mod:`placement_proofs.layouts.setups`).
        convention: bytes per element, by name.
    """

    model: str
    gpus: int
    global_batch: int
    sequence: int | None = None
    device: str | None = None
    cluster: str | None = None
    setup: str | None = None
    convention: str | None = None

    def job(self) -> Job:
        """The job.

        Raises:
            IllFormed: an unknown name, a wrong file, or a number below 1.
        """
        self._check()
        if self.setup is None:
            name, shape = read_shape(self.model)
            job = Job(name, shape, self.global_batch, self.gpus, self._machine("a100-80gb"))
        else:
            job = self._of_setup(self.setup)
        job = with_tokens(job, self.sequence) if self.sequence else job
        return replace(job, convention=convention(self.convention))

    def _check(self) -> None:
        numbers = {
            "--gpus": self.gpus,
            "--global-batch": self.global_batch,
            "--seq": self.sequence or 1,
        }
        for place, number in numbers.items():
            if not 1 <= number <= 10**7:
                raise IllFormed(
                    place, str(number), "a whole number from 1 to 10,000,000", "correct it"
                )

    def _machine(self, default: str) -> Machine:
        return load_machine(self.device or default, self.cluster)

    def _of_setup(self, text: str) -> Job:
        setup = load_setup(text)
        if self.model not in setup.models:
            raise IllFormed(
                "--model",
                repr(self.model),
                f"the setup {setup.name} has the models {', '.join(setup.models)}",
                "name one of them, or leave out --setup",
            )
        length = self.sequence or setup.models[self.model].sequence
        job = setup.job(self.model, length, self.gpus, self.global_batch)
        return replace(job, machine=self._machine(setup.machine.device.name))


def with_tokens(job: Job, sequence: int) -> Job:
    """The same job with another number of tokens in a sequence."""
    return replace(job, shape=replace(job.shape, sequence=sequence))


def read_shape(text: str) -> tuple[str, Shape]:
    """A model's name and shape: of a preset, of a TOML file or of a ``config.json``.

    Raises:
        IllFormed: no such model, or one without a shape.
    """
    model = load_model(text)
    if model.shape is not None:
        return model.name, model.shape
    raise IllFormed(
        "--model",
        repr(text),
        "a layout is of a transformer with layers, heads and a sequence",
        "name one such as llama-13b, or give a TOML file or a config.json",
    )

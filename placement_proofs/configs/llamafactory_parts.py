"""A LLaMA-Factory job, and what its three engines have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from placement_proofs.configs.document import Section
from placement_proofs.configs.notes import Notes, World
from placement_proofs.configs.record import Batch, Dtypes
from placement_proofs.mesh import Dim
from placement_proofs.model import Model


@dataclass(frozen=True)
class Job:
    """A file, the world in ranks, and the backend that its keys belong to."""

    directory: Path
    root: Section
    world: World
    backend: str
    notes: Notes
    model: Model | None

    def degree(self, key: str) -> int:
        """A degree in ranks; one where it is left out."""
        return self.root.integer(key, 1, least=1) or 1

    def batch(self, ranks: Dim) -> Batch:
        """Samples of a rank, micro-batches, and their product over the data ranks."""
        micro = self.root.integer("per_device_train_batch_size", 8, least=1)
        steps = self.root.integer("gradient_accumulation_steps", 1, least=1)
        total = micro * steps * ranks if micro and steps and isinstance(ranks, int) else None
        return Batch(micro, steps, total)

    def take_batch(self, batch: Batch) -> None:
        """Record the batch."""
        root, notes = self.root, self.notes
        notes.take("micro_batch", batch.micro_batch, root, "per_device_train_batch_size")
        notes.take("accumulation", batch.accumulation, root, "gradient_accumulation_steps")
        total = batch.global_batch
        notes.add("global_batch", total, "derived" if total else "unknown")

    def take_common(self) -> None:
        """Record the sequence length and what is trained."""
        root, notes = self.root, self.notes
        length = root.integer("cutoff_len", 2048, least=1)
        notes.take("seq_len", length, root, "cutoff_len", "tokens")
        kind = root.word("finetuning_type", "lora")
        if self.backend == "trainer" and kind in ("lora", "freeze", "oft"):
            notes.assume(
                f"finetuning_type {kind}: a part of the weights is trained; the composition "
                "trains every weight"
            )

    def dtypes(self, *, sharded: bool = False) -> Dtypes:
        """Formats under ``bf16`` and ``fp16``; ``pure_bf16`` has no wide copy."""
        root = self.root
        if root.flag("pure_bf16", False):
            self.notes.take("compute_dtype", "bf16", root, "pure_bf16")
            return Dtypes("bf16", "bf16", "bf16", "bf16")
        key = "bf16" if root.flag("bf16", False) else "fp16"
        on = bool(root.flag(key, False))
        compute = key if on else "fp32"
        self.notes.take("compute_dtype", compute, root, key if on else "bf16")
        return Dtypes(compute, "fp32", "fp32", compute if sharded else "fp32", copies=False)

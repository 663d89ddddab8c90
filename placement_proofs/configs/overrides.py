"""Hydra's ``key.path=value`` words on a command line, as flags with Megatron's names."""

from __future__ import annotations

import re
from collections.abc import Iterable

from placement_proofs.configs.document import Item
from placement_proofs.configs.shell_expand import Word, merged, scalar, text_of
from placement_proofs.configs.shell_lex import Mark

RENAMED = {
    "activations_checkpoint_granularity": "recompute_granularity",
    "activations_checkpoint_method": "recompute_method",
    "activations_checkpoint_num_layers": "recompute_num_layers",
    "num_moe_experts": "num_experts",
    "encoder_seq_length": "seq_length",
    "ub_tp_comm_overlap": "tp_comm_overlap",
    "train_global_batch_size": "global_batch_size",
    "train_micro_batch_size": "micro_batch_size",
    "max_total_sequence_length": "seq_length",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
    "overlap_grad_sync": "overlap_grad_reduce",
    "overlap_param_sync": "overlap_param_gather",
}
"""NeMo's names for Megatron's."""

_WORD = re.compile(
    r"(?:\+{0,2})((?:model|train|ddp|dist|policy\.megatron_cfg|policy|trainer|cluster|"
    r"actor_rollout_ref\.actor\.megatron)\.)([A-Za-z_]\w*)=(.*)\Z",
    re.S,
)
_MACHINES = {
    "trainer.devices": "nproc_per_node",
    "trainer.n_gpus_per_node": "nproc_per_node",
    "cluster.gpus_per_node": "nproc_per_node",
    "trainer.num_nodes": "nnodes",
    "trainer.nnodes": "nnodes",
    "cluster.num_nodes": "nnodes",
}


def overridden(words: Iterable[Word]) -> Iterable[tuple[str, Item, Mark]]:
    """Each override: Megatron's name, its value, and the origin of the value."""
    for word in words:
        match = _WORD.match(text_of(word))
        if match is None:
            continue
        path = match[1] + match[2]
        name = _MACHINES.get(path, RENAMED.get(match[2], match[2]))
        if match[1] == "trainer." and path not in _MACHINES:
            continue
        mark = merged(word, 0)
        yield name, Item(scalar(match[3]), mark.line, path), mark

"""The keys that DeepSpeed knows, block by block (deepspeedai/DeepSpeed, the named files)."""

from __future__ import annotations

from collections.abc import Mapping

from placement_proofs.configs.document import words

MARKS = words(
    "zero_optimization train_batch_size train_micro_batch_size_per_gpu fp16 bf16 amp "
    "gradient_accumulation_steps zero_allow_untested_optimizer activation_checkpointing "
    "zero_force_ds_cpu_optimizer steps_per_print"
)
"""Keys that tell a DeepSpeed file."""

FOREIGN = words("distributed_type compute_environment pipe_parallel_size num_layers")
"""Keys of other formats that embed DeepSpeed's (Accelerate, gpt-neox)."""

TOP = MARKS | words(
    "optimizer scheduler gradient_clipping prescale_gradients gradient_predivide_factor "
    "gradient_allreduce_op communication_data_type seq_parallel_communication_data_type "
    "sparse_gradients wall_clock_breakdown memory_breakdown dump_state disable_allgather "
    "data_types bfloat16 torch_autocast aio autotuning elasticity compile compression_training "
    "tensor_parallel sequence_parallel_size data_parallel_size pipeline expert_parallel "
    "activation_checkpointing sparse_attention flops_profiler comms_logger tensorboard wandb "
    "comet csv_monitor checkpoint data_efficiency curriculum_learning progressive_layer_drop "
    "eigenvalue hybrid_engine graph_harvesting timers nebula datastates weight_quantization "
    "quantize_training zero_quantized_weights dataloader_drop_last log_level monitor_config "
    "allgather_size load_universal_checkpoint communication fp32_allreduce vocabulary_size "
    "use_data_before_expert_parallelism managed_gradient_accumulation use_node_local_storage "
    "data_sampling checkpoint_engine domino inference"
)
"""Top-level keys (``runtime/config.py``, ``runtime/constants.py``)."""

_ALIASED = words(
    "prefetch_bucket_size param_persistence_threshold model_persistence_threshold "
    "max_live_parameters max_reuse_distance gather_16bit_weights_on_model_save "
    "module_granularity_threshold use_all_reduce_for_fetch_params allgather_sequential "
    "partition_stream_chunk_size"
)

ZERO = words(
    "stage contiguous_gradients reduce_scatter reduce_bucket_size allgather_partitions "
    "use_multi_rank_bucket_allreduce allgather_bucket_size overlap_comm load_from_fp32_weights "
    "elastic_checkpoint offload_param offload_optimizer zenflow sub_group_size cpu_offload "
    "cpu_offload_param cpu_offload_use_pin_memory stage3_gather_fp16_weights_on_model_save "
    "ignore_unused_parameters legacy_stage1 round_robin_gradients zero_hpz_partition_size "
    "zero_quantized_weights zero_quantized_nontrainable_weights zero_quantized_gradients "
    "zeropp_loco_param mics_shard_size mics_hierarchical_params_gather memory_efficient_linear "
    "pipeline_loading_checkpoint override_module_apply log_trace_cache_warnings "
    "enable_sanity_checks save_muon_momentum_buffer_in_memory leaf_module"
) | frozenset([*_ALIASED, *(f"stage3_{name}" for name in _ALIASED)])
"""Keys of ``zero_optimization`` (``runtime/zero/config.py``)."""

OFFLOAD: Mapping[str, frozenset[str]] = {
    "offload_param": words("device nvme_path buffer_count buffer_size max_in_cpu pin_memory"),
    "offload_optimizer": words(
        "device nvme_path buffer_count pin_memory pipeline_read pipeline_write pipeline fast_init "
        "ratio super_offload convert_grad_on_cpu cpuadam_cores_perc"
    ),
}
"""Keys of the offload blocks (``runtime/zero/offload_config.py``)."""

BUCKETS: Mapping[str, tuple[str, int]] = {
    "reduce_bucket_size": ("reduce_bucket_size", 500_000_000),
    "allgather_bucket_size": ("allgather_bucket_size", 500_000_000),
    "sub_group_size": ("sub_group_size", 1_000_000_000),
    "prefetch_bucket_size": ("stage3_prefetch_bucket_size", 50_000_000),
    "param_persistence_threshold": ("stage3_param_persistence_threshold", 100_000),
    "max_live_parameters": ("stage3_max_live_parameters", 1_000_000_000),
    "max_reuse_distance": ("stage3_max_reuse_distance", 1_000_000_000),
}
"""Sizes in elements: the neutral name (also DeepSpeed's alias), the key, the default."""

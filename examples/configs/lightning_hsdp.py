"""Two machines of eight GPUs: shards inside a machine, replicas across. Read, never run."""

import lightning as L
from lightning.pytorch.strategies import FSDPStrategy
from model import Block, LanguageModel

strategy = FSDPStrategy(
    auto_wrap_policy={Block},
    activation_checkpointing_policy={Block},
    sharding_strategy="HYBRID_SHARD",
)
trainer = L.Trainer(
    devices=8,
    num_nodes=2,
    strategy=strategy,
    precision="bf16-mixed",
    accumulate_grad_batches=4,
)
trainer.fit(LanguageModel())

#!/usr/bin/env bash
set -euo pipefail
torchrun --nnodes=2 --nproc-per-node=8 pretrain_gpt.py \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 \
  --expert-model-parallel-size 8 --context-parallel-size 2 --sequence-parallel \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 \
  --num-attention-heads 32 --group-query-attention --num-query-groups 8 \
  --seq-length 4096 --vocab-size 32000 --make-vocab-size-divisible-by 1 \
  --swiglu --normalization RMSNorm --position-embedding-type rope \
  --untie-embeddings-and-output-weights --disable-bias-linear \
  --num-experts 8 --moe-router-topk 2 --moe-token-dispatcher-type alltoall \
  --micro-batch-size 1 --global-batch-size 256 --train-samples 1000000 \
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
  --bf16 --fp8-format hybrid

#!/bin/sh
touch ran-by-line
OUT=$(touch ran-by-substitution)
BACK=`touch ran-by-backticks`
N=$((8 * $(touch ran-by-arithmetic; echo 1)))
torchrun --nproc_per_node 4 train.py --per_device_train_batch_size "$(touch ran-in-quotes; echo 2)" \
    --max_steps 10 --output_dir "${X:-$(touch ran-by-default)}" $(touch ran-in-words)

# fine-tunes on one node; the DeepSpeed settings stand next to this file
MODEL="meta-llama/Llama-3.1-8B"
EPOCHS=3
export CUDA_VISIBLE_DEVICES=0,1,2,3

deepspeed --num_gpus 4 run_clm.py \
    --model_name_or_path "$MODEL" \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 8 \
    --num_train_epochs ${EPOCHS} \
    --max_train_samples 52000 \
    --block_size 2048 \
    --bf16 True \
    --gradient_checkpointing \
    --deepspeed zero3.json \
    --output_dir "out/$(date +%F)"

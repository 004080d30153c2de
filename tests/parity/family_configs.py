"""The config.json that transformers writes for a small model of each family, and its tensors' names.

usage: family_configs.py FILE        (needs torch and transformers)

Writes {CASE: {"config": ..., "tensors": [names, layers and experts as N]}}, for
tests/common/model/families_test.cc.
"""
import glob
import json
import re
import sys
import tempfile

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

OLD = dict(vocab_size=96, bos_token_id=1, eos_token_id=2, pad_token_id=0)
BASE = dict(OLD, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128)
FOUR = dict(BASE, num_hidden_layers=4)
EIGHT = dict(BASE, head_dim=8)
GPT = dict(OLD, n_positions=64, n_embd=32, n_layer=2, n_head=4)
FALCON = dict(OLD, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
ROPE = dict(rope_type="default", rope_theta=10000.0)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=2.0, original_max_position_embeddings=16)
LONGROPE = dict(ROPE, rope_type="longrope", partial_rotary_factor=0.5,
                short_factor=[1.0, 1.2, 1.5, 2.0], long_factor=[1.0, 3.0, 6.0, 9.0],
                original_max_position_embeddings=64)
SCALES = dict(embedding_multiplier=2.0, logits_scaling=0.5, residual_multiplier=0.7,
              attention_multiplier=0.3)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
LATENT = dict(num_key_value_heads=4, kv_lora_rank=12, q_lora_rank=10, qk_nope_head_dim=8,
              qk_rope_head_dim=4, v_head_dim=6)
SCALED_YARN = dict(YARN, mscale=0.7, mscale_all_dim=0.8)
ROUTED = dict(num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=16,
              first_k_dense_replace=1)
LINEAR = dict(linear_key_head_dim=8, linear_value_head_dim=12, linear_num_key_heads=2,
              linear_num_value_heads=4)
SLIDING, FULL = "sliding_attention", "full_attention"
GEMMA4 = dict(head_dim=16, global_head_dim=32, sliding_window=8)

CASES = {
    "llama": ("llama", dict(BASE, attention_bias=True, mlp_bias=True)),
    "llama4": ("llama4_text", dict(FOUR, head_dim=8, intermediate_size_mlp=64, num_local_experts=4,
                                   interleave_moe_layer_step=2, attention_chunk_size=16,
                                   floor_scale=8)),
    "mimo_v2_flash": ("mimo_v2_flash", dict(BASE, num_hidden_layers=6, num_key_value_heads=1,
                                            head_dim=24, v_head_dim=8, sliding_window=8,
                                            n_routed_experts=4, num_experts_per_tok=2,
                                            moe_intermediate_size=16)),
    "mistral": ("mistral", dict(BASE, sliding_window=8)),
    "ministral": ("ministral", dict(EIGHT, sliding_window=8, layer_types=[SLIDING, FULL])),
    "ministral3": ("ministral3", dict(EIGHT, rope_parameters=dict(YARN, llama_4_scaling_beta=0.1))),
    "qwen2": ("qwen2", dict(FOUR, use_sliding_window=True, sliding_window=8, max_window_layers=2)),
    "qwen3": ("qwen3", dict(BASE, head_dim=16)),
    "seed_oss": ("seed_oss", EIGHT),
    "smollm3": ("smollm3", dict(FOUR, no_rope_layer_interval=4)),
    "arcee": ("arcee", BASE),
    "apertus": ("apertus", BASE),
    "nemotron": ("nemotron", BASE),
    "hunyuan_dense": ("hunyuan_v1_dense", dict(EIGHT, rope_parameters=dict(
        ROPE, rope_type="dynamic", alpha=10.0, factor=1.0))),
    "ernie4_5": ("ernie4_5", dict(EIGHT, use_bias=True)),
    "granite": ("granite", dict(BASE, **SCALES)),
    "hyperclovax": ("hyperclovax", dict(EIGHT, **SCALES)),
    "hyperclovax-pre": ("hyperclovax", dict(EIGHT, use_post_norm=False)),
    "olmo": ("olmo", dict(BASE, clip_qkv=2.0)),
    "olmo2": ("olmo2", BASE),
    "olmo3": ("olmo3", dict(FOUR, sliding_window=8, rope_parameters={
        FULL: dict(YARN, rope_theta=500000.0), SLIDING: dict(ROPE, rope_theta=500000.0)})),
    "exaone4": ("exaone4", dict(FOUR, sliding_window=8, sliding_window_pattern=4)),
    "exaone4-full": ("exaone4", dict(BASE, sliding_window=None, layer_types=[FULL, FULL])),
    "gemma": ("gemma", dict(BASE, head_dim=16)),
    "gemma2": ("gemma2", dict(BASE, head_dim=16, sliding_window=8, query_pre_attn_scalar=24,
                              attn_logit_softcapping=3.0, final_logit_softcapping=5.0)),
    "gemma3": ("gemma3_text", dict(BASE, head_dim=16, num_hidden_layers=6, sliding_window=8,
                                   query_pre_attn_scalar=24)),
    "gemma4": ("gemma4_text", dict(BASE, **GEMMA4, num_hidden_layers=6, num_kv_shared_layers=2,
                                   layer_types=[SLIDING, FULL] * 3, use_double_wide_mlp=True,
                                   hidden_size_per_layer_input=6, vocab_size_per_layer_input=96)),
    "gemma4-keys": ("gemma4_text", dict(FOUR, **GEMMA4, attention_k_eq_v=True,
                                        num_global_key_value_heads=1, hidden_size_per_layer_input=0,
                                        final_logit_softcapping=30.0)),
    "gemma4-experts": ("gemma4_text", dict(BASE, **GEMMA4, hidden_size_per_layer_input=0,
                                           enable_moe_block=True, num_experts=4, top_k_experts=2,
                                           moe_intermediate_size=16)),
    "glm": ("glm", EIGHT),
    "glm4": ("glm4", EIGHT),
    "phi3": ("phi3", dict(BASE, hidden_size=64, original_max_position_embeddings=64,
                          rope_parameters=LONGROPE)),
    "phi": ("phi", dict(BASE, num_key_value_heads=4)),
    "cohere": ("cohere", dict(BASE, use_qk_norm=True, logit_scale=1.2)),
    "cohere2": ("cohere2", dict(FOUR, sliding_window=8)),
    "stablelm": ("stablelm", dict(BASE, use_qkv_bias=True, qk_layernorm=True)),
    "stablelm-parallel": ("stablelm", dict(BASE, use_parallel_residual=True)),
    "starcoder2": ("starcoder2", dict(BASE, sliding_window=8)),
    "gpt2": ("gpt2", dict(GPT, scale_attn_by_inverse_layer_idx=True)),
    "gpt_bigcode": ("gpt_bigcode", GPT),
    "gpt_bigcode-heads": ("gpt_bigcode", dict(GPT, multi_query=False)),
    "gpt_neox": ("gpt_neox", {k: v for k, v in BASE.items() if k != "num_key_value_heads"}),
    "gpt_neox-serial": ("gpt_neox", dict(BASE, use_parallel_residual=False)),
    "gptj": ("gptj", dict(GPT, rotary_dim=4)),
    "opt": ("opt", dict(OLD, hidden_size=32, num_hidden_layers=2, ffn_dim=48, num_attention_heads=4,
                        max_position_embeddings=64, word_embed_proj_dim=32)),
    "falcon": ("falcon", FALCON),
    "falcon-rw": ("falcon", dict(FALCON, alibi=True, bias=True, multi_query=False, num_kv_heads=None,
                                 parallel_attn=False)),
    "falcon-40b": ("falcon", dict(FALCON, new_decoder_architecture=True, num_kv_heads=2)),
    "falcon-11b": ("falcon", dict(FALCON, new_decoder_architecture=True, num_kv_heads=2,
                                  num_ln_in_parallel_attn=1, ffn_hidden_size=64)),
    "bloom": ("bloom", dict(OLD, hidden_size=32, n_layer=2, n_head=4)),
    "mpt": ("mpt", dict(OLD, d_model=32, n_heads=4, n_layers=2, max_seq_len=64,
                        attn_config=dict(clip_qkv=2.0, softmax_scale=0.3))),
    "helium": ("helium", EIGHT),
    "cwm": ("cwm", dict(FOUR, head_dim=8, sliding_window=8)),
    "minicpm3": ("minicpm3", dict(BASE, **dict(LATENT, v_head_dim=8), rope_parameters=SCALED_YARN,
                                  scale_emb=2, scale_depth=1.4, dim_model_base=16)),
    "minicpm3-direct": ("minicpm3", dict(BASE, **dict(LATENT, q_lora_rank=None),
                                         attention_bias=True)),
    "mixtral": ("mixtral", dict(BASE, num_local_experts=4)),
    "qwen2_moe": ("qwen2_moe", dict(BASE, **EXPERTS, shared_expert_intermediate_size=24)),
    "qwen3_moe": ("qwen3_moe", dict(BASE, **EXPERTS, head_dim=16)),
    "olmoe": ("olmoe", dict(BASE, num_experts=4, num_experts_per_tok=2)),
    "phimoe": ("phimoe", dict(BASE, num_local_experts=4, attention_bias=True, lm_head_bias=True)),
    "granitemoe": ("granitemoe", dict(BASE, **SCALES, num_local_experts=4)),
    "granitemoeshared": ("granitemoeshared", dict(BASE, **SCALES, num_local_experts=4,
                                                  shared_intermediate_size=24)),
    "gpt_oss": ("gpt_oss", dict(EIGHT, num_local_experts=4, num_experts_per_tok=2,
                                sliding_window=8)),
    "ernie4_5_moe": ("ernie4_5_moe", dict(BASE, moe_intermediate_size=16, moe_k=2,
                                          moe_num_experts=4)),
    "hunyuan_moe": ("hunyuan_v1_moe", dict(EIGHT, num_experts=4, moe_topk=2, rope_parameters=dict(
        ROPE, rope_type="dynamic", alpha=10.0, factor=1.0))),
    "glm4_moe": ("glm4_moe", dict(EIGHT, **ROUTED, n_routed_experts=4, n_group=2, topk_group=1,
                                  use_qk_norm=True, num_mtp_layers=0)),
    "deepseek_v2": ("deepseek_v2", dict(BASE, **LATENT, **ROUTED, n_routed_experts=4, n_group=2,
                                        topk_group=1, topk_method="group_limited_greedy",
                                        routed_scaling_factor=2.0, rope_parameters=SCALED_YARN)),
    "deepseek_v2-lite": ("deepseek_v2", dict(BASE, **dict(LATENT, q_lora_rank=None), **ROUTED,
                                             n_routed_experts=4)),
    "deepseek_v3": ("deepseek_v3", dict(BASE, **LATENT, **ROUTED, n_routed_experts=8, n_group=2,
                                        topk_group=1, num_mtp_layers=0,
                                        rope_parameters=SCALED_YARN)),
    "glm4_moe_lite": ("glm4_moe_lite", dict(BASE, **LATENT, num_experts_per_tok=2,
                                            moe_intermediate_size=16, n_routed_experts=4)),
    "dots1": ("dots1", dict(EIGHT, **ROUTED, n_routed_experts=4, norm_topk_prob=True)),
    "exaone_moe": ("exaone_moe", dict(FOUR, **EXPERTS, head_dim=8, sliding_window=8)),
    "minimax_m2": ("minimax_m2", dict(EIGHT, num_local_experts=4, num_experts_per_tok=2,
                                      rope_parameters=dict(ROPE, partial_rotary_factor=0.5))),
    "qwen3_next": ("qwen3_next", dict(FOUR, **LINEAR, **EXPERTS, head_dim=16,
                                      shared_expert_intermediate_size=24)),
    "qwen3_5": ("qwen3_5_text", dict(FOUR, **LINEAR, head_dim=16, rope_parameters=dict(
        ROPE, partial_rotary_factor=0.5, mrope_section=[2, 1, 1], mrope_interleaved=True))),
    "qwen3_5_moe": ("qwen3_5_moe_text", dict(
        {k: v for k, v in FOUR.items() if k != "intermediate_size"}, **LINEAR, **EXPERTS, head_dim=16,
        shared_expert_intermediate_size=24)),
}


def tensor_names(model):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        found = set()
        for path in glob.glob(folder + "/*.safetensors"):
            with safe_open(path, "pt") as tensors:
                found |= {re.sub(r"(?<=\.)\d+(?=\.)", "N", name) for name in tensors.keys()}
    return sorted(found)


def make(model_type, keys):
    config = AutoConfig.for_model(model_type, **keys)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.config.architectures = [type(model).__name__]
    return {"config": json.loads(model.config.to_json_string()), "tensors": tensor_names(model)}


if __name__ == "__main__":
    torch.manual_seed(0)
    made = {name: make(*case) for name, case in CASES.items()}
    with open(sys.argv[1], "w") as out:
        out.write("{\n")
        out.write(",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in made.items()))
        out.write("\n}\n")

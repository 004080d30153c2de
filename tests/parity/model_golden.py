"""Golden files for tests/common/model: small random checkpoints with what transformers computes on them.

usage: model_golden.py DIR [CASE...]        (needs torch, transformers, safetensors; accelerate for fp8)

Writes DIR/CASE/{config.json, model.safetensors, golden.json}. golden.json holds packed sequences of token
ids, and for each its log-probs log p(ids[t+1] | ids[..t]) and entropies in float32, computed sequence by
sequence; and gradients of  mean(logprobs) + 0.1 * mean(entropy)  over all sequences' predictions, by the
names of the checkpoint, as [sum, sum of squares, first values]. Weights are saved in the type that the
case's "dtype" names, float32 by default, and rounded to it before anything is computed.
"""
import copy
import json
import os
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, FineGrainedFP8Config

LENGTHS = [1, 2, 9, 23, 17]
SMALL = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=131, max_position_embeddings=128, bos_token_id=1,
             eos_token_id=2)
# A folder is 10 to 20 KB: bfloat16 halves it.
TINY = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=41, max_position_embeddings=48, bos_token_id=1,
            eos_token_id=2, pad_token_id=0, dtype="bfloat16")
# Families older than Llama have names of their own.
OLD = {key: TINY[key] for key in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id",
                                  "dtype")}
GPT = dict(OLD, n_positions=24, n_embd=16, n_layer=2, n_head=4, n_inner=20)
DEFAULT_ROPE = dict(rope_type="default", rope_theta=10000.0)
HALF_ROPE = dict(DEFAULT_ROPE, partial_rotary_factor=0.5)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=2.0, original_max_position_embeddings=16)
LATENT = dict(num_key_value_heads=4, kv_lora_rank=12, q_lora_rank=10, qk_nope_head_dim=6,
              qk_rope_head_dim=4, v_head_dim=5)
SCALED_YARN = dict(YARN, mscale=0.7, mscale_all_dim=0.8)
LINEAR_THEN_FULL = ["linear_attention", "full_attention"]
LINEAR = dict(layer_types=LINEAR_THEN_FULL, head_dim=8, linear_conv_kernel_dim=3,
              linear_key_head_dim=6, linear_value_head_dim=5, linear_num_key_heads=2,
              linear_num_value_heads=4)
WINDOW_THEN_FULL = ["sliding_attention", "full_attention"]
GEMMA4 = dict(head_dim=6, global_head_dim=8, sliding_window=6, rope_parameters=dict(
    sliding_attention=DEFAULT_ROPE,
    full_attention=dict(rope_type="proportional", rope_theta=100.0, partial_rotary_factor=0.5)))
MULTIPLIERS = dict(embedding_multiplier=2.0, logits_scaling=0.5, residual_multiplier=0.7,
                   attention_multiplier=0.3)
# The first layer is dense.
DEEPSEEK = dict(num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=10,
                first_k_dense_replace=1)


def tiny(**keys):
    return dict(TINY, **keys)


def without(keys, *names):
    return {key: value for key, value in keys.items() if key not in names}


CASES = {
    # head_dim is neither hidden / heads nor a power of two.
    "llama": ("llama", dict(SMALL, head_dim=10, tie_word_embeddings=False)),
    "llama3-rope-tied": ("llama", dict(
        SMALL, head_dim=16, tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
        rope_theta=10000.0,
        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=16))),
    "llama-linear-rope": ("llama", dict(SMALL, head_dim=6, num_key_value_heads=4, vocab_size=97,
                                        rope_scaling=dict(rope_type="linear", factor=3.0))),
    "qwen2": ("qwen2", dict(SMALL, hidden_size=28, num_attention_heads=7, num_key_value_heads=1,
                            tie_word_embeddings=False, rope_theta=1000000.0)),
    "qwen2-tied": ("qwen2", dict(SMALL, tie_word_embeddings=True)),
    # The second layer sees 8 tokens; most sequences are longer.
    "qwen2-window": ("qwen2", dict(SMALL, tie_word_embeddings=False, use_sliding_window=True,
                                   sliding_window=8, max_window_layers=1)),
    "qwen3": ("qwen3", dict(SMALL, head_dim=16, tie_word_embeddings=False)),
    # The head and one projection are not quantised.
    "qwen3-fp8": ("qwen3", tiny(
        head_dim=8, intermediate_size=24, tie_word_embeddings=False,
        quantization_config=dict(quant_method="fp8", activation_scheme="dynamic",
                                 weight_block_size=[8, 4],
                                 modules_to_not_convert=["lm_head", "model.layers.0.mlp.up_proj"]))),
    "qwen3-tied": ("qwen3", dict(SMALL, head_dim=12, num_key_value_heads=1, tie_word_embeddings=True,
                                 attention_bias=True)),
    # The second layer is dense. Some experts get few tokens or none.
    "qwen3-moe": ("qwen3_moe", dict(SMALL, head_dim=16, num_hidden_layers=3, mlp_only_layers=[1],
                                    num_experts=12, num_experts_per_tok=3, moe_intermediate_size=10,
                                    norm_topk_prob=True)),
    # The first layer is dense; weights are as the softmax gives them; a shared expert.
    "qwen2-moe": ("qwen2_moe", dict(SMALL, decoder_sparse_step=2, num_experts=5,
                                    num_experts_per_tok=2, moe_intermediate_size=14,
                                    shared_expert_intermediate_size=20)),
    # Both layers see 8 tokens.
    "mixtral": ("mixtral", dict(SMALL, sliding_window=8, num_local_experts=4,
                                num_experts_per_tok=2)),
    "llama-dynamic-rope": ("llama", tiny(rope_parameters=dict(
        rope_type="dynamic", rope_theta=10000.0, factor=2.0,
        original_max_position_embeddings=12), max_position_embeddings=12)),
    "llama-yarn": ("llama", tiny(rope_parameters=YARN)),
    "mistral": ("mistral", tiny(sliding_window=8)),
    "ministral": ("ministral", tiny(head_dim=8, sliding_window=8, rope_parameters=DEFAULT_ROPE,
                                    layer_types=WINDOW_THEN_FULL)),
    "ministral3": ("ministral3", tiny(head_dim=8, rope_parameters=dict(
        YARN, original_max_position_embeddings=6, llama_4_scaling_beta=0.1))),
    # Biases of q, k and v; the output's is apart.
    "seed-oss": ("seed_oss", tiny(head_dim=8)),
    "smollm3": ("smollm3", tiny(no_rope_layer_interval=2)),
    "arcee": ("arcee", tiny()),
    "apertus": ("apertus", tiny(rope_parameters=DEFAULT_ROPE)),
    "nemotron": ("nemotron", tiny(head_dim=8)),
    "hunyuan-dense": ("hunyuan_v1_dense", tiny(head_dim=8, rope_parameters=dict(
        DEFAULT_ROPE, rope_type="dynamic", alpha=10.0, factor=1.0))),
    "ernie4-5": ("ernie4_5", tiny(head_dim=8, use_bias=True)),
    "granite": ("granite", tiny(**MULTIPLIERS)),
    "hyperclovax": ("hyperclovax", tiny(**MULTIPLIERS, head_dim=8, use_post_norm=True)),
    "olmo": ("olmo", tiny(clip_qkv=1.0)),
    "olmo2": ("olmo2", tiny()),
    "olmo3": ("olmo3", tiny(sliding_window=8, layer_types=WINDOW_THEN_FULL, rope_parameters=dict(
        full_attention=YARN, sliding_attention=DEFAULT_ROPE))),
    "exaone4": ("exaone4", tiny(sliding_window=8, layer_types=WINDOW_THEN_FULL)),
    "gemma": ("gemma", tiny(head_dim=8)),
    "gemma2": ("gemma2", tiny(head_dim=8, sliding_window=8, query_pre_attn_scalar=24,
                              attn_logit_softcapping=3.0, final_logit_softcapping=5.0)),
    "gemma3": ("gemma3_text", tiny(
        head_dim=8, sliding_window=8, query_pre_attn_scalar=24,
        layer_types=WINDOW_THEN_FULL,
        rope_parameters=dict(sliding_attention=DEFAULT_ROPE,
                             full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0)))),
    # The full layer has one key-value head, which is its value too; experts beside dense layers.
    "gemma4": ("gemma4_text", tiny(
        **GEMMA4, layer_types=WINDOW_THEN_FULL, attention_k_eq_v=True, num_global_key_value_heads=1,
        final_logit_softcapping=5.0, hidden_size_per_layer_input=0, enable_moe_block=True,
        num_experts=4, top_k_experts=2, moe_intermediate_size=6)),
    # The last two layers read the keys and values of the first two, and are wider; inputs of layers.
    "gemma4-carried": ("gemma4_text", tiny(
        **GEMMA4, num_hidden_layers=4, layer_types=WINDOW_THEN_FULL * 2, num_kv_shared_layers=2,
        use_double_wide_mlp=True, hidden_size_per_layer_input=4, vocab_size_per_layer_input=41)),
    "glm": ("glm", tiny(head_dim=8)),
    "glm4": ("glm4", tiny(head_dim=8)),
    # The longer sequences take the long factors.
    "phi3": ("phi3", tiny(
        num_attention_heads=2, num_key_value_heads=1, original_max_position_embeddings=12,
        rope_parameters=dict(DEFAULT_ROPE, rope_type="longrope", partial_rotary_factor=0.5,
                             short_factor=[1.0, 1.2], long_factor=[1.5, 3.0],
                             original_max_position_embeddings=12))),
    "phi": ("phi", tiny(num_key_value_heads=4, rope_parameters=HALF_ROPE)),
    "cohere": ("cohere", tiny(use_qk_norm=True, logit_scale=1.2)),
    "cohere2": ("cohere2", tiny(sliding_window=8, layer_types=WINDOW_THEN_FULL,
                                logit_scale=1.2)),
    "stablelm": ("stablelm", tiny(use_qkv_bias=True, qk_layernorm=True, rope_parameters=HALF_ROPE)),
    "stablelm-parallel": ("stablelm", tiny(use_parallel_residual=True, rope_parameters=HALF_ROPE)),
    "starcoder2": ("starcoder2", tiny(sliding_window=8)),
    "gpt2": ("gpt2", dict(GPT, scale_attn_by_inverse_layer_idx=True)),
    "gpt-bigcode": ("gpt_bigcode", GPT),
    "gpt-neox": ("gpt_neox", without(tiny(rope_parameters=HALF_ROPE), "num_key_value_heads")),
    "gpt-neox-serial": ("gpt_neox", without(
        tiny(rope_parameters=HALF_ROPE, use_parallel_residual=False), "num_key_value_heads")),
    "gptj": ("gptj", dict(GPT, rotary_dim=2)),
    "opt": ("opt", dict(OLD, hidden_size=16, num_hidden_layers=2, ffn_dim=20,
                        max_position_embeddings=24, num_attention_heads=4, word_embed_proj_dim=16)),
    # As the 7B model: one KV head, one norm.
    "falcon": ("falcon", dict(OLD, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
                              ffn_hidden_size=20, multi_query=True)),
    # As the 40B model: KV groups, two norms.
    "falcon-grouped": ("falcon", dict(OLD, hidden_size=16, num_hidden_layers=2,
                                      num_attention_heads=4, ffn_hidden_size=20, num_kv_heads=2,
                                      new_decoder_architecture=True)),
    # As falcon-rw: serial, with ALiBi and biases.
    "falcon-alibi": ("falcon", dict(OLD, hidden_size=16, num_hidden_layers=2,
                                    num_attention_heads=4, ffn_hidden_size=20, multi_query=False,
                                    parallel_attn=False, bias=True, alibi=True)),
    "bloom": ("bloom", dict(OLD, hidden_size=16, n_layer=2, n_head=4)),
    # Six heads: the slopes of ALiBi are those of a power of two.
    "mpt": ("mpt", dict(OLD, d_model=12, n_heads=6, n_layers=2, expansion_ratio=1, max_seq_len=48)),
    "helium": ("helium", tiny(head_dim=4)),
    "minicpm3": ("minicpm3", tiny(**LATENT, rope_parameters=SCALED_YARN, scale_emb=2, scale_depth=1.4,
                                  dim_model_base=8)),
    # Queries are projected at once; biases of the other projections.
    "minicpm3-direct": ("minicpm3", tiny(**dict(LATENT, q_lora_rank=None), attention_bias=True,
                                         rope_parameters=DEFAULT_ROPE, scale_emb=2,
                                         dim_model_base=16)),
    "cwm": ("cwm", tiny(head_dim=8, sliding_window=8,
                        layer_types=["full_attention", "sliding_attention"],
                        rope_parameters=DEFAULT_ROPE)),
    "olmoe": ("olmoe", tiny(num_experts=6, num_experts_per_tok=2, intermediate_size=12)),
    # transformers takes the short factors for any length, so no sequence is longer.
    "phimoe": ("phimoe", tiny(
        num_local_experts=5, intermediate_size=12, attention_bias=True, lm_head_bias=True,
        router_jitter_noise=0.3, rope_parameters=dict(
            rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.5],
            long_factor=[2.0, 4.0], short_mscale=1.2, long_mscale=1.3,
            original_max_position_embeddings=24))),
    "granitemoe": ("granitemoe", tiny(**MULTIPLIERS, num_local_experts=5, intermediate_size=12)),
    "granitemoeshared": ("granitemoeshared", tiny(
        **MULTIPLIERS, num_local_experts=4, intermediate_size=12, shared_intermediate_size=10)),
    "gpt-oss": ("gpt_oss", tiny(
        head_dim=8, num_local_experts=4, num_experts_per_tok=2, intermediate_size=12,
        sliding_window=8, rope_parameters=dict(YARN, truncate=False))),
    # The first layer is dense.
    "ernie4-5-moe": ("ernie4_5_moe", tiny(
        num_hidden_layers=3, moe_intermediate_size=10, moe_k=2, moe_num_experts=5,
        moe_num_shared_experts=2, use_bias=True)),
    "hunyuan-moe": ("hunyuan_v1_moe", tiny(
        head_dim=8, num_experts=4, moe_topk=2, intermediate_size=12, rope_parameters=dict(
            DEFAULT_ROPE, rope_type="dynamic", alpha=10.0, factor=1.0))),
    # Of two groups of four experts, one counts.
    "glm4-moe": ("glm4_moe", tiny(
        **DEEPSEEK, head_dim=8, attention_bias=True, use_qk_norm=True, n_routed_experts=8,
        n_group=2, topk_group=1, routed_scaling_factor=1.5, num_mtp_layers=0)),
    # The best expert of each group of three decides which of two groups counts.
    "deepseek-v2": ("deepseek_v2", tiny(
        **LATENT, **DEEPSEEK, n_routed_experts=6, n_group=2, topk_group=1,
        topk_method="group_limited_greedy", routed_scaling_factor=2.0,
        rope_parameters=SCALED_YARN)),
    # As DeepSeek-V2-Lite.
    "deepseek-v2-lite": ("deepseek_v2", tiny(
        **dict(LATENT, q_lora_rank=None), **dict(DEEPSEEK, n_shared_experts=2),
        n_routed_experts=5, attention_bias=True)),
    "deepseek-v3": ("deepseek_v3", tiny(
        **LATENT, **DEEPSEEK, n_routed_experts=8, n_group=2, topk_group=1, num_mtp_layers=0,
        rope_parameters=SCALED_YARN)),
    "glm4-moe-lite": ("glm4_moe_lite", tiny(
        **LATENT, **without(DEEPSEEK, "first_k_dense_replace"), n_routed_experts=5,
        attention_bias=True)),
    "dots1": ("dots1", tiny(
        **DEEPSEEK, head_dim=8, n_routed_experts=5, norm_topk_prob=False,
        routed_scaling_factor=0.7, sliding_window=8, layer_types=WINDOW_THEN_FULL)),
    "exaone-moe": ("exaone_moe", tiny(
        **without(DEEPSEEK, "n_shared_experts"), num_shared_experts=1, head_dim=8, num_experts=5,
        sliding_window=8, layer_types=WINDOW_THEN_FULL)),
    "minimax-m2": ("minimax_m2", tiny(
        head_dim=8, num_local_experts=5, num_experts_per_tok=2, intermediate_size=12,
        rope_parameters=HALF_ROPE)),
    # The first layer is dense, in chunks; the second does not rotate.
    "llama4": ("llama4_text", tiny(
        head_dim=8, intermediate_size=12, intermediate_size_mlp=20, num_local_experts=4,
        num_experts_per_tok=2, interleave_moe_layer_step=2, no_rope_layers=[1, 0],
        attention_chunk_size=6, floor_scale=5, attn_scale=0.3)),
    # The second layer has a window, sinks and twice the key-value heads; the first is dense.
    "mimo-v2-flash": ("mimo_v2_flash", tiny(
        num_key_value_heads=1, head_dim=14, v_head_dim=5, sliding_window=6, n_routed_experts=5,
        num_experts_per_tok=2, moe_intermediate_size=10, routed_scaling_factor=1.3,
        attention_value_scale=0.6, rope_parameters=dict(
            full_attention=dict(DEFAULT_ROPE, partial_rotary_factor=0.334),
            sliding_attention=dict(DEFAULT_ROPE, rope_theta=100.0, partial_rotary_factor=0.334)))),
    # The second layer is dense.
    "qwen3-next": ("qwen3_next", tiny(
        **LINEAR, rope_parameters=HALF_ROPE, mlp_only_layers=[1], num_experts=5,
        num_experts_per_tok=2, moe_intermediate_size=10, shared_expert_intermediate_size=12)),
    "qwen3-5": ("qwen3_5_text", tiny(**LINEAR, rope_parameters=HALF_ROPE, attention_bias=True)),
    "qwen3-5-moe": ("qwen3_5_moe_text", without(tiny(
        **LINEAR, rope_parameters=HALF_ROPE, num_experts=5, num_experts_per_tok=2,
        moe_intermediate_size=10, shared_expert_intermediate_size=12), "intermediate_size")),
}


CORRECTION = "e_score_correction_bias"  # of a router: a tensor of the folder that is not trained
SCALAR = "layer_scalar"  # likewise: a factor of what a layer yields
# Of Gemma 4, whose scores have no other scale, and whose inputs of layers add small vectors made large.
UNSCALED = ("q_norm.weight", "k_norm.weight", "post_per_layer_input_norm.weight")


def tensors(model):
    """What the folder has: parameters, and the buffers that correct routers and scale layers."""
    yield from model.named_parameters()
    yield from ((name, b) for name, b in model.named_buffers() if CORRECTION in name or SCALAR in name)


def randomize(model):
    """Larger weights than the initial ones, and biases and norms that are not all alike."""
    for name, parameter in tensors(model):
        if CORRECTION in name:
            torch.nn.init.normal_(parameter, 0.0, 0.1)
        elif model.config.model_type == "gemma4_text" and name.endswith(UNSCALED):
            torch.nn.init.normal_(parameter, 0.4, 0.1)
        elif (parameter == 1).all():  # a norm's
            torch.nn.init.normal_(parameter, 1.0, 0.2)
        elif "act_fn.alpha" in name:
            torch.nn.init.normal_(parameter, parameter.item(), 0.2)
        else:
            torch.nn.init.normal_(parameter, 0.0, 0.25)


def round_weights(model, dtype):
    with torch.no_grad():
        for _, tensor in tensors(model):
            tensor.copy_(tensor.to(dtype))


def quantize(folder, settings):
    """Makes matrices of the folder float8_e4m3fn, with a bfloat16 scale for each block as Qwen3-FP8 has.
    Returns what transformers reads from it."""
    rows, columns = settings["weight_block_size"]
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    for name in sorted(tensors):
        module = name.removesuffix(".weight")
        if not name.endswith("_proj.weight") or module in settings["modules_to_not_convert"]:
            continue
        blocks = tensors[name].float().unflatten(1, (-1, columns)).unflatten(0, (-1, rows))
        scales = (blocks.abs().amax((1, 3)) / torch.finfo(torch.float8_e4m3fn).max).bfloat16()
        scaled = blocks / scales.float()[:, None, :, None]
        limit = torch.finfo(torch.float8_e4m3fn).max
        elements = scaled.clamp(-limit, limit).flatten(2, 3).flatten(0, 1)
        tensors[name] = elements.to(torch.float8_e4m3fn)
        tensors[name + "_scale_inv"] = scales
    save_file(tensors, path, metadata={"format": "pt"})
    os.chmod(path, 0o644)
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        config = dict(json.load(file), quantization_config=settings)
    with open(path, "w") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32,
        quantization_config=FineGrainedFP8Config(dequantize=True, **without(settings, "quant_method")))


def forget_lengths(model):
    """A dynamic rope keeps the frequencies of the longest sequence before; each begins anew here."""
    for module in model.modules():
        if getattr(module, "rope_type", None) == "dynamic":
            module.max_seq_len_cached = module.original_max_seq_len
            module.inv_freq = module.original_inv_freq.clone()


def gradients_of(model):
    """Gradients by the folder's names: saved in place of the weights, because transformers holds
    a layer's experts as one tensor."""
    buffers = {name for name, _ in model.named_buffers()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None
                            else parameter.grad)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        saved = load_file(os.path.join(folder, "model.safetensors"))
    return {
        name: [g.double().sum().item(), g.double().square().sum().item(), g.flatten()[:8].tolist()]
        for name, g in saved.items() if name not in buffers and CORRECTION not in name
    }


def rounded(value):
    """Nine digits give every float32 back."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def main(out, cases):
    for case in cases or CASES:
        family, keys = CASES[case]
        torch.manual_seed(11)
        dtype = getattr(torch, keys.get("dtype", "float32"))
        quantization = keys.get("quantization_config")
        config = AutoConfig.for_model(family, **without(keys, "quantization_config"))
        # Falcon's eager attention adds ALiBi twice, once in the mask.
        attention = "sdpa" if getattr(config, "alibi", False) is True else "eager"
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32,
                                                 attn_implementation=attention,
                                                 experts_implementation="eager").eval()
        randomize(model)
        round_weights(model, dtype)
        folder = os.path.join(out, case)
        os.makedirs(folder, exist_ok=True)
        copy.deepcopy(model).to(dtype).save_pretrained(folder)
        generation = os.path.join(folder, "generation_config.json")
        if os.path.exists(generation):
            os.remove(generation)
        if quantization is not None:
            model.load_state_dict(quantize(folder, quantization).state_dict())

        # A padding token has no gradient.
        first = 0 if config.pad_token_id is None else 3
        sequences = [torch.randint(first, config.vocab_size, (n,)).tolist() for n in LENGTHS]
        logprobs, entropies = [], []
        for ids in sequences:
            forget_lengths(model)
            logits = model(torch.tensor([ids]), use_cache=False).logits[0, :-1].float()
            log_p = torch.log_softmax(logits, -1)
            logprobs.append(log_p.gather(1, torch.tensor(ids[1:], dtype=torch.int64)[:, None])[:, 0])
            entropies.append(-(log_p.exp() * log_p).sum(-1))
        (torch.cat(logprobs).mean() + 0.1 * torch.cat(entropies).mean()).backward()
        golden = dict(sequences=sequences, logprobs=[x.tolist() for x in logprobs],
                      entropies=[x.tolist() for x in entropies], gradients=gradients_of(model))
        with open(os.path.join(folder, "golden.json"), "w") as file:
            json.dump(rounded(golden), file)
            file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

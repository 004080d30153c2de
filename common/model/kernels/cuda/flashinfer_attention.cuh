// FlashInfer's batched prefill over a paged cache (arXiv 2501.01005), for one head_dim. Its query
// tiles hold the heads of a group, so one kernel serves prompts and decoding of any group.
// tools/setup pins the release of the headers, because templates change between releases.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_FLASHINFER_ATTENTION_CUH_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_FLASHINFER_ATTENTION_CUH_

#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>

#include "common/device/launch.cuh"
#include "common/model/kernels/cuda/paged_attention.h"

namespace tandem::model::cuda {

template <int kHeadDim>
cudaError_t LaunchFlashInferOf(const PagedAttention& args, cudaStream_t stream) {
  using T = __nv_bfloat16;
  using Params = ::flashinfer::BatchPrefillPagedParams<T, T, T, int32_t>;
  using Variant = ::flashinfer::DefaultAttention</*use_custom_mask=*/false,
                                                 /*use_sliding_window=*/false,
                                                 /*use_logits_soft_cap=*/false,
                                                 /*use_alibi=*/false>;
  const PagedBatch& batch = args.batch;
  // FlashInfer only reads these.
  const auto mutable_ints = [](const int32_t* ints) { return const_cast<int32_t*>(ints); };
  const ::flashinfer::paged_kv_t<T, int32_t> cache(
      static_cast<uint32_t>(args.num_kv_heads), static_cast<uint32_t>(args.block_size), kHeadDim,
      static_cast<uint32_t>(batch.num_sequences), ::flashinfer::QKVLayout::kHND,
      static_cast<T*>(args.keys), static_cast<T*>(args.values), mutable_ints(batch.pages),
      mutable_ints(batch.page_starts), mutable_ints(batch.last_page_length));
  Params params(const_cast<T*>(static_cast<const T*>(args.q)), cache,
                /*maybe_custom_mask=*/nullptr, mutable_ints(batch.row_starts),
                /*maybe_mask_indptr=*/nullptr, /*maybe_q_rope_offset=*/nullptr,
                static_cast<T*>(args.out), /*lse=*/nullptr, /*maybe_alibi_slopes=*/nullptr,
                static_cast<uint32_t>(args.num_heads), static_cast<int32_t>(args.q_row_stride),
                static_cast<int32_t>(args.q_head_stride), /*window_left=*/-1,
                /*logits_soft_cap=*/0.0f, args.scale, /*rope_scale=*/1.0f, /*rope_theta=*/1e4f);
  params.request_indices = mutable_ints(batch.piece_sequence);
  params.qo_tile_indices = mutable_ints(batch.piece_tile);
  params.kv_tile_indices = mutable_ints(batch.piece_chunk);
  params.merge_indptr = mutable_ints(batch.merge_starts);
  params.o_indptr = mutable_ints(batch.partial_starts);
  params.kv_chunk_size_ptr = mutable_ints(batch.chunk_length);
  params.block_valid_mask =
      reinterpret_cast<bool*>(const_cast<uint8_t*>(batch.piece_is_real));  // 0 or 1
  params.total_num_rows = const_cast<uint32_t*>(batch.total_rows);
  params.max_total_num_rows = static_cast<uint32_t>(batch.num_rows);
  params.padded_batch_size = static_cast<uint32_t>(batch.num_pieces);
  // Splits the keys if given partial results, otherwise not.
  T* const partial_out = batch.split ? static_cast<T*>(args.partial_out) : nullptr;
  float* const partial_sums = batch.split ? args.partial_log_sum_exp : nullptr;
  const auto launch = [&](auto tile_rows) {
    return ::flashinfer::BatchPrefillWithPagedKVCacheDispatched<
        /*SAME_KV_STRIDES=*/true, decltype(tile_rows)::value, kHeadDim, kHeadDim,
        ::flashinfer::PosEncodingMode::kNone, /*USE_FP16_QK_REDUCTION=*/false,
        ::flashinfer::MaskMode::kCausal, Variant>(params, partial_out, partial_sums,
                                                  /*enable_pdl=*/device::LaunchesEarly(), stream);
  };
  switch (batch.tile_rows) {
    case 16:
      return launch(std::integral_constant<uint32_t, 16>());
    case 64:
      return launch(std::integral_constant<uint32_t, 64>());
    case 128:
      return launch(std::integral_constant<uint32_t, 128>());
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_FLASHINFER_ATTENTION_CUH_

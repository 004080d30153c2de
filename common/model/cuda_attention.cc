// DeviceAttention for CUDA devices.
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/comm/run_with_deadline.h"
#include "common/model/attention_plan.h"
#include "common/model/cuda_delta_forward.h"
#include "common/model/cuda_tensor.h"
#include "common/model/device_attention.h"
#include "common/model/device_delta_attention.h"
#include "common/model/gpu_head_sizes.h"
#include "common/model/kernels/cuda/paged_attention.h"
#include "common/model/kernels/cuda/row_kernels.h"
#include "common/model/numerics.h"

namespace tandem::model {
namespace {

constexpr int64_t kAlignment = 16;  // bytes, of an array
constexpr int64_t kLeastBytes = int64_t{4} << 20;
// Buffers grow when more sequences decode at once.
constexpr int64_t kUsualSequences = 512;
// Blocks of the launch that each multiprocessor holds at once, at most.
constexpr int64_t kPiecesAtOnce = 2;
// Bytes of shared memory that the system keeps of each block's.
constexpr int64_t kReservedShared = 1024;
// No chunking: longer than any sequence, and doubling it does not overflow.
constexpr int32_t kWhole = int32_t{1} << 30;

// Offsets of a plan's arrays in one buffer, which one copy moves to the device. The offsets of all
// but the pages, which come last, depend only on the numbers of tokens, sequences and pieces. So a
// CUDA graph, which keeps addresses, can be replayed over another batch.
class Places {
 public:
  template <typename T>
  int64_t Take(int64_t count) {
    const int64_t place = size_;
    size_ += (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return place;
  }
  int64_t size() const { return size_; }

 private:
  int64_t size_ = 0;
};

// The tiles of the kernel over latents for which the device has enough shared memory.
absl::Span<const int64_t> LatentTiles(const cudaDeviceProp& device, int64_t head_dim) {
  absl::Span<const int64_t> tiles = cuda::kLatentTiles;
  while (!tiles.empty() && cuda::LatentSharedBytes(tiles.back(), static_cast<int>(head_dim)) >
                               static_cast<int64_t>(device.sharedMemPerBlockOptin)) {
    tiles.remove_suffix(1);
  }
  return tiles;
}

static_assert(kMaxLatentDimOnGpu == cuda::kMaxSharedHeadDim);

class CudaAttention : public DeviceAttention {
 public:
  CudaAttention(const PagedKvCache& cache, int64_t num_heads)
      : cache_(cache), num_heads_(num_heads) {
    const PagedKvCacheOptions& o = cache.options();
    const cudaDeviceProp& device = *at::cuda::getDeviceProperties(o.device.index());
    const int64_t processors = device.multiProcessorCount;
    geometry_.heads_per_kv_head = std::max<int64_t>(1, num_heads / o.num_kv_heads);
    geometry_.block_size = o.block_size;
    if (o.shared) geometry_.tiles = LatentTiles(device, o.head_dim);
    kernel_ = ChooseKernel();
    // The plain kernel has no pieces.
    if (kernel_ == Kernel::kPlain) {
      geometry_.tiles = kFlashInferTiles;
    } else {
      geometry_.wanted_pieces =
          std::max<int64_t>(1, PiecesAtOnce(device) * processors / o.num_kv_heads);
      // Keys are split only if that yields at most the wanted pieces, so this is the maximum.
      const int64_t of_prompts =
          geometry_.wanted_pieces * geometry_.tiles.back() / geometry_.heads_per_kv_head;
      // Latents are split only where there are fewer pieces than wanted.
      const int64_t sequences = o.shared ? 1 : kUsualSequences;
      ReservePartials(std::max(of_prompts, DecodePartials(MostDecodePieces(sequences, geometry_))));
    }
    Reserve(kLeastBytes);
  }

  int64_t address_epoch() const override { return epoch_; }

  void Plan(absl::Span<const PagedSequence> sequences, int64_t padded_to) override {
    if (cache_.states().count() > 0) {
      for (const PagedSequence& sequence : sequences) cache_.states().Check(sequence.state);
    }
    // Rows that pad the batch have no state: they begin, and leave none.
    std::vector<PagedSequence> padded;
    if (padded_to > 0) {
      padded.assign(sequences.begin(), sequences.end());
      while (static_cast<int64_t>(padded.size()) < padded_to) {
        padded.push_back({.first_token = static_cast<int64_t>(padded.size()),
                          .num_tokens = 1,
                          .context_length = 1,
                          .blocks = &padding_block_});
      }
      sequences = padded;
    }
    const AttentionPlan plan = PlanAttention(sequences, geometry_);
    const bool is_fixed = padded_to > 0;
    const int64_t pieces = is_fixed ? MostDecodePieces(padded_to, geometry_) : plan.num_pieces();
    Lay(plan, pieces, sequences);
    // Without splitting there are enough pieces, whatever the lengths.
    const bool stays_whole = kernel_ == Kernel::kLatents &&
                             padded_to * DecodeTiles(geometry_) >= geometry_.wanted_pieces;
    batch_.split = is_fixed ? !stays_whole : plan.chunk > 0;
    if (batch_.split && kernel_ != Kernel::kPlain) {
      ReservePartials(is_fixed ? DecodePartials(pieces) : plan.num_partials());
    }
  }

  at::Tensor Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionParams& params) override {
    Write(layer, k, v);
    return Attended(layer, q, params);
  }

  bool KeepsKeys() const override { return true; }

  at::Tensor ForwardQueries(int64_t kv_layer, const at::Tensor& q,
                            const AttentionParams& params) override {
    return Attended(kv_layer, q, params);
  }

  bool CachesLatents() const override { return cache_.options().shared; }

  at::Tensor ForwardLatents(int64_t layer, const at::Tensor& q, const at::Tensor& latents,
                            const AttentionParams& params) override {
    Write(layer, latents.unsqueeze(1), /*v=*/{});
    return Attended(layer, q.contiguous(), params);
  }

  at::Tensor ForwardDelta(int64_t layer, const DeltaSpec& spec,
                          const DeltaTensors& tensors) override {
    TORCH_CHECK(device::DeltaAttentionTakes(spec, tensors),
                "linear attention: expected tensors of one type on the cache's device");
    const RecurrentStates& states = cache_.states();
    cuda::DeltaBatch rows;
    rows.num_rows = batch_.num_rows;
    rows.num_sequences = batch_.num_sequences;
    rows.row_sequence = batch_.row_sequence;
    rows.row_starts = batch_.row_starts;
    rows.states = states_;
    rows.row_position = batch_.row_position;
    rows.state = states.State(layer, 0);
    rows.tail = states.Tail(layer, 0);
    rows.state_stride = states.bytes_between();
    return device::DeltaForwardOf(spec, tensors, rows);
  }

 private:
  enum class Kernel { kPlain, kFlashInfer, kLatents };

  Kernel ChooseKernel() const {
    const PagedKvCacheOptions& o = cache_.options();
    if (exact_ || !o.layers.empty()) return Kernel::kPlain;
    const cuda::Element type =
        o.dtype == at::kFloat ? cuda::Element::kFloat32 : cuda::Element::kBFloat16;
    const int head_dim = static_cast<int>(o.head_dim);
    if (o.shared) {
      return cuda::LatentsTake(type, head_dim, static_cast<int>(o.value_dim())) &&
                     !geometry_.tiles.empty()
                 ? Kernel::kLatents
                 : Kernel::kPlain;
    }
    return o.value_dim() == o.head_dim && cuda::FlashInferTakes(type, head_dim)
               ? Kernel::kFlashInfer
               : Kernel::kPlain;
  }

  // In decode steps.
  int64_t PiecesAtOnce(const cudaDeviceProp& device) const {
    if (kernel_ != Kernel::kLatents) return kPiecesAtOnce;
    const int64_t bytes = cuda::LatentSharedBytes(TileRows(geometry_.heads_per_kv_head, geometry_),
                                                  static_cast<int>(cache_.options().head_dim)) +
                          kReservedShared;
    return std::clamp<int64_t>(static_cast<int64_t>(device.sharedMemPerMultiprocessor) / bytes, 1,
                               kPiecesAtOnce);
  }

  // Undefined v: the cache's values are part of its keys.
  void Write(int64_t layer, const at::Tensor& k, const at::Tensor& v) {
    const PagedKvCacheOptions& o = cache_.options();
    const CacheSpec& cached = cache_.layer(layer);
    const at::Tensor& keys = cache_.keys(layer);
    cuda::WriteKv write;
    write.type = CudaElementOf(k);
    write.rows = batch_.num_rows;
    write.num_kv_heads = static_cast<int>(cached.num_kv_heads);
    write.head_dim = static_cast<int>(cached.head_dim);
    write.v_head_dim = static_cast<int>(cached.v_head_dim);
    write.block_size = static_cast<int>(o.block_size);
    write.block_stride = keys.stride(0);
    write.k = k.const_data_ptr();
    write.k_row_stride = k.stride(0);
    write.k_head_stride = k.stride(1);
    write.keys = keys.mutable_data_ptr();
    if (v.defined()) {
      write.v = v.const_data_ptr();
      write.v_row_stride = v.stride(0);
      write.v_head_stride = v.stride(1);
      write.values = cache_.values(layer).mutable_data_ptr();
    }
    write.slots = slots_;
    C10_CUDA_CHECK(cuda::Launch(write, CurrentStream(o.device)));
  }

  at::Tensor Attended(int64_t layer, const at::Tensor& q, const AttentionParams& params) {
    const PagedKvCacheOptions& o = cache_.options();
    const CacheSpec& cached = cache_.layer(layer);
    const at::Tensor& keys = cache_.keys(layer);
    cudaStream_t const stream = CurrentStream(o.device);
    at::Tensor out = at::empty({q.size(0), q.size(1) * cached.v_head_dim}, q.options());
    cuda::PagedAttention attend;
    attend.batch = batch_;
    attend.type = CudaElementOf(q);
    attend.num_heads = static_cast<int>(q.size(1));
    attend.num_kv_heads = static_cast<int>(cached.num_kv_heads);
    attend.head_dim = static_cast<int>(cached.head_dim);
    attend.v_head_dim = static_cast<int>(cached.v_head_dim);
    attend.shared = cached.shared;
    attend.block_size = static_cast<int>(o.block_size);
    attend.block_stride = keys.stride(0);
    attend.q = q.const_data_ptr();
    attend.q_row_stride = q.stride(0);
    attend.q_head_stride = q.stride(1);
    attend.keys = keys.mutable_data_ptr();
    attend.values = cache_.values(layer).mutable_data_ptr();
    attend.out = out.mutable_data_ptr();
    attend.scale = static_cast<float>(params.scale);
    const bool is_plain = params.softcap == 0 && params.alibi.scale == 0 && params.window == 0 &&
                          !params.sinks.has_value();
    // FlashInfer's mask is causal.
    if (is_plain && batch_.row_last_key == nullptr && kernel_ != Kernel::kPlain) {
      if (batch_.split) {
        attend.partial_out = partial_out_.mutable_data_ptr();
        attend.partial_log_sum_exp = partial_sums_.mutable_data_ptr<float>();
      }
      C10_CUDA_CHECK(kernel_ == Kernel::kLatents ? cuda::LaunchLatents(attend, stream)
                                                 : cuda::LaunchFlashInfer(attend, stream));
      return out;
    }
    attend.softcap = static_cast<float>(params.softcap);
    attend.alibi = params.alibi;
    attend.window = params.window;
    at::Tensor sinks;
    if (params.sinks.has_value()) {
      sinks = params.sinks->to(o.device, at::kFloat).contiguous();
      attend.sinks = sinks.const_data_ptr<float>();
    }
    C10_CUDA_CHECK(cuda::LaunchPlain(attend, stream));
    return out;
  }

  // Allocates this many bytes for arrays, on host and device.
  void Reserve(int64_t bytes) {
    if (host_.defined() && host_.numel() >= bytes) return;
    const int64_t size = std::max(bytes, host_.defined() ? 2 * host_.numel() : int64_t{0});
    host_ = at::empty({size}, at::TensorOptions(at::kByte).pinned_memory(true));
    device_ = at::empty({size}, at::TensorOptions(at::kByte).device(cache_.options().device));
    ++epoch_;
  }

  // The partial results of as many pieces, each of which has all tiles of a token.
  int64_t DecodePartials(int64_t pieces) const {
    const int64_t tiles = DecodeTiles(geometry_);
    return (pieces + tiles - 1) / tiles;
  }

  void ReservePartials(int64_t rows) {
    if (partial_out_.defined() && partial_out_.size(0) >= rows) return;
    const PagedKvCacheOptions& o = cache_.options();
    const auto options = at::TensorOptions(o.dtype).device(o.device);
    partial_out_ = at::empty({rows, num_heads_, o.value_dim()}, options);
    partial_sums_ = at::empty({rows, num_heads_}, options.dtype(at::kFloat));
    ++epoch_;
  }

  // Writes the plan into the buffer and queues its copy to the device. `pieces`: of the launch;
  // those beyond the plan's are marked not real.
  void Lay(const AttentionPlan& plan, int64_t pieces, absl::Span<const PagedSequence> planned) {
    const int64_t tokens = plan.num_tokens();
    const int64_t sequences = plan.num_sequences();
    Places places;
    const int64_t slots = places.Take<int32_t>(tokens);
    const int64_t row_sequence = places.Take<int32_t>(tokens);
    const int64_t row_position = places.Take<int32_t>(tokens);
    // None in steps that a graph holds, so that their offsets stay.
    const auto ahead = static_cast<int64_t>(plan.row_last_key.size());
    const int64_t row_last_key = places.Take<int32_t>(ahead);
    const int64_t row_starts = places.Take<int32_t>(sequences + 1);
    const int64_t page_starts = places.Take<int32_t>(sequences + 1);
    const int64_t last_page_length = places.Take<int32_t>(sequences);
    const int64_t piece_sequence = places.Take<int32_t>(pieces);
    const int64_t piece_tile = places.Take<int32_t>(pieces);
    const int64_t piece_chunk = places.Take<int32_t>(pieces);
    const int64_t piece_is_real = places.Take<uint8_t>(pieces);
    const int64_t partial_starts = places.Take<int32_t>(sequences + 1);
    const int64_t merge_starts = places.Take<int32_t>(tokens + 1);
    const int64_t chunk_length = places.Take<int32_t>(1);
    const int64_t total_rows = places.Take<uint32_t>(1);
    const int64_t states = places.Take<int32_t>(sequences);
    const int64_t pages = places.Take<int32_t>(static_cast<int64_t>(plan.pages.size()));
    Reserve(places.size());

    auto* const host = static_cast<std::byte*>(host_.mutable_data_ptr());
    const auto put = [host](int64_t place, const std::vector<int32_t>& values) {
      if (!values.empty())
        std::memcpy(host + place, values.data(), values.size() * sizeof(int32_t));
    };
    put(slots, plan.slots);
    put(row_sequence, plan.row_sequence);
    put(row_position, plan.row_position);
    put(row_last_key, plan.row_last_key);
    put(row_starts, plan.row_starts);
    put(page_starts, plan.page_starts);
    put(last_page_length, plan.last_page_length);
    put(piece_sequence, plan.piece_sequence);
    put(piece_tile, plan.piece_tile);
    put(piece_chunk, plan.piece_chunk);
    std::memset(host + piece_is_real, 0, pieces);
    std::memset(host + piece_is_real, 1, plan.num_pieces());
    put(partial_starts, plan.partial_starts);
    put(merge_starts, plan.merge_starts);
    put(chunk_length, {plan.chunk == 0 ? kWhole : static_cast<int32_t>(plan.chunk)});
    put(total_rows, {static_cast<int32_t>(tokens)});
    std::vector<int32_t> state_of;
    for (const PagedSequence& sequence : planned) state_of.push_back(sequence.state);
    put(states, state_of);
    put(pages, plan.pages);

    const auto* const there = static_cast<const std::byte*>(device_.const_data_ptr());
    const auto ints = [there](int64_t place) {
      return reinterpret_cast<const int32_t*>(there + place);
    };
    batch_.num_rows = tokens;
    batch_.num_sequences = sequences;
    batch_.num_pieces = pieces;
    batch_.tile_rows = static_cast<int>(plan.tile_rows);
    slots_ = ints(slots);
    batch_.row_sequence = ints(row_sequence);
    batch_.row_position = ints(row_position);
    batch_.row_last_key = ahead > 0 ? ints(row_last_key) : nullptr;
    batch_.row_starts = ints(row_starts);
    batch_.page_starts = ints(page_starts);
    batch_.last_page_length = ints(last_page_length);
    batch_.piece_sequence = ints(piece_sequence);
    batch_.piece_tile = ints(piece_tile);
    batch_.piece_chunk = ints(piece_chunk);
    batch_.piece_is_real = reinterpret_cast<const uint8_t*>(there + piece_is_real);
    batch_.partial_starts = ints(partial_starts);
    batch_.merge_starts = ints(merge_starts);
    batch_.chunk_length = ints(chunk_length);
    batch_.total_rows = reinterpret_cast<const uint32_t*>(there + total_rows);
    batch_.pages = ints(pages);
    states_ = ints(states);
    C10_CUDA_CHECK(cudaMemcpyAsync(device_.mutable_data_ptr(), host, places.size(),
                                   cudaMemcpyHostToDevice, CurrentStream(cache_.options().device)));
  }

  const PagedKvCache& cache_;
  const int64_t num_heads_;
  const bool exact_ = CurrentNumerics() == Numerics::kExact;
  const int32_t padding_block_ = cache_.padding_block();
  AttentionGeometry geometry_;
  Kernel kernel_ = Kernel::kPlain;
  int64_t epoch_ = 0;
  at::Tensor host_;    // uint8, page-locked
  at::Tensor device_;  // uint8
  at::Tensor partial_out_;
  at::Tensor partial_sums_;
  cuda::PagedBatch batch_;
  const int32_t* slots_ = nullptr;
  const int32_t* states_ = nullptr;  // [sequences]
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceAttention>> CreateCudaAttention(const PagedKvCache& cache,
                                                                     int64_t num_heads) {
  const PagedKvCacheOptions& o = cache.options();
  if (!o.device.is_cuda() || !o.device.has_index()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected the KV cache on a CUDA device with an index, found ", o.device.str()));
  }
  for (int64_t layer = 0; layer < o.num_layers; ++layer) {
    const CacheSpec& cached = cache.layer(layer);
    const int most = cached.shared ? cuda::kMaxSharedHeadDim : cuda::kMaxPlainHeadDim;
    if (cached.head_dim <= most && cached.v_head_dim <= cuda::kMaxPlainHeadDim) continue;
    return absl::UnimplementedError(absl::StrCat(
        "attention on a GPU: expected ", cached.shared ? "latents with their rotated part" : "keys",
        " of at most ", most, " elements and ", cached.shared ? "latents" : "values",
        " of at most ", cuda::kMaxPlainHeadDim, ", found ", cached.head_dim, " and ",
        cached.v_head_dim));
  }
  for (const Window& window : cache.groups().windows) {
    if (!window.IsLimited()) continue;
    return absl::UnimplementedError(
        absl::StrCat("attention on a GPU: expected a KV cache that frees no blocks, found one that "
                     "frees those beyond a window of ",
                     window.size));
  }
  // Slots are numbered in 32 bits.
  if ((o.num_blocks + 1) * o.block_size > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention on a GPU: expected a KV cache of less than 2^31 tokens, found ",
                     o.num_blocks * o.block_size, "; lower rollout.kv_cache_megabytes"));
  }
  try {
    const c10::cuda::CUDAGuard guard(o.device);
    return std::make_unique<CudaAttention>(cache, num_heads);
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("attention on ", o.device.str(), ": ", comm::FirstLine(error.what())));
  }
}

}  // namespace tandem::model

#include "common/device/launch.cuh"
#include "common/model/kernels/cuda/delta_recurrence.cuh"

namespace tandem::model::cuda {
namespace {

// Keeps the inputs of the last tokens, which may be older than these rows, by the blocks of a sequence
// together. Each token moves to an earlier place, and one thread moves all of a channel, so that none is
// overwritten before it is read. The convolution of these rows is done.
template <typename T>
__device__ void KeepTail(const DeltaAdvance& args, const DeltaSequence& sequence, int block,
                         int num_blocks) {
  const DeltaShape& shape = args.shape;
  const int kept = shape.kernel_size - 1;
  T* const tail = TailOf<T>(args.batch, sequence.state);
  for (int64_t channel = int64_t{block} * kRecurrenceThreads + threadIdx.x;
       channel < shape.channels(); channel += int64_t{num_blocks} * kRecurrenceThreads) {
    for (int i = 0; i < kept; ++i) {
      tail[i * shape.channels() + channel] =
          ConvolutionInput<T>(shape, args.batch, sequence, sequence.num_rows - kept + i, channel);
    }
  }
}

// A block has some columns of one head of a sequence.
template <typename T, int kElements>
__global__ void __launch_bounds__(kRecurrenceThreads) AdvanceKernel(const DeltaAdvance args) {
  tandem::device::AwaitPredecessor();
  constexpr int kTokens = kTokensAtOnce<kElements>;
  constexpr int kQuadsOfToken = kElements / 4 * kPartsOfColumn;
  __shared__ Quad q_of[kTokens * kQuadsOfToken];
  __shared__ Quad k_of[kTokens * kQuadsOfToken];
  __shared__ float v_of[kTokens * kDeltaColumns];
  __shared__ float beta_of[kTokens];
  __shared__ float decay_of[kTokens];
  const DeltaShape& shape = args.shape;
  const DeltaSequence sequence(args.batch, static_cast<int>(blockIdx.x / args.num_heads));
  const auto [of_sequence, head, key_head, first_column, part, of_block, column, is_column] =
      ColumnOfThread(shape, args.first_head, args.num_heads);
  const int64_t keys_stride = shape.key_size();
  const int64_t values_stride = shape.value_size();
  const int padded = shape.padded_value_dim();
  float* const kept = sequence.state < 0
                          ? nullptr
                          : reinterpret_cast<float*>(static_cast<char*>(args.batch.state) +
                                                     sequence.state * args.batch.state_stride) +
                                int64_t{head} * shape.key_dim * padded + column;

  LaneColumn<kElements> state;
  state.Clear();
  if (!sequence.begins && is_column) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const int r = LaneColumn<kElements>::RowOf(part, i);
      if (r < shape.key_dim) state.at[i] = kept[int64_t{r} * padded];
    }
  }
  for (int first = 0; first < sequence.num_rows; first += kTokens) {
    const int left = sequence.num_rows - first;
    const int count = left < kTokens ? left : kTokens;
    const int64_t place = int64_t{sequence.first_place} + first;
    if (args.boundaries != nullptr && first % kDeltaChunk == 0 && is_column) {
      float* const boundary =
          args.boundaries +
          ((place / kDeltaChunk * args.num_heads + of_sequence) * shape.value_dim + column) *
              shape.key_dim;
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        const int r = LaneColumn<kElements>::RowOf(part, i);
        if (r < shape.key_dim) boundary[r] = state.at[i];
      }
    }
    __syncthreads();  // the tokens before have been read
    const int64_t keys = place * keys_stride + int64_t{key_head} * shape.key_dim;
    LoadKeys<kElements>(args.inputs.q + keys, keys_stride, shape.key_dim, count, q_of);
    LoadKeys<kElements>(args.inputs.k + keys, keys_stride, shape.key_dim, count, k_of);
    const int64_t values = place * values_stride + int64_t{head} * shape.value_dim + first_column;
    LoadValues(args.inputs.v + values, values_stride, shape.value_dim - first_column, count, v_of);
    for (int t = threadIdx.x; t < count; t += kRecurrenceThreads) {
      const int64_t gate = (place + t) * shape.num_value_heads + head;
      beta_of[t] = args.inputs.beta[gate];
      decay_of[t] = args.inputs.decay[gate];
    }
    __syncthreads();
    for (int t = 0; t < count; ++t) {
      const Quad* const k = k_of + t * kQuadsOfToken;
      const float decay = decay_of[t];
      const float error = fmaf(-decay, state.Times(k, part), v_of[t * kDeltaColumns + of_block]);
      state.Add(k, part, beta_of[t] * error, decay);
      const float out = state.Times(q_of + t * kQuadsOfToken, part);
      if (part > 0 || !is_column) continue;
      args.out[values + t * values_stride + of_block] = out;
      if (args.error != nullptr) args.error[values + t * values_stride + of_block] = error;
    }
  }
  if (kept == nullptr) return;
  if (is_column) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const int r = LaneColumn<kElements>::RowOf(part, i);
      if (r < shape.key_dim) kept[int64_t{r} * padded] = state.at[i];
    }
  }
  KeepTail<T>(args, sequence, static_cast<int>(of_sequence * gridDim.y + blockIdx.y),
              static_cast<int>(args.num_heads * gridDim.y));
}

template <typename T>
void LaunchAdvance(const DeltaAdvance& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.batch.num_sequences * args.num_heads),
                  static_cast<unsigned>(DeltaTiles(args.shape)));
  WithElementsOfLane(args.shape.key_dim, [&](auto elements) {
    constexpr int kElements = decltype(elements)::value;
    TANDEM_LAUNCH_EARLY((AdvanceKernel<T, kElements>), grid, kRecurrenceThreads, 0, stream, args);
  });
}

// A warp has a head of a row.
template <typename T>
__global__ void __launch_bounds__(kDeltaWarps* kWarp) OutputKernel(const DeltaOutput args) {
  tandem::device::AwaitPredecessor();
  const DeltaShape& shape = args.shape;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kDeltaWarps + threadIdx.x / kWarp;
  const int64_t row = item / shape.num_value_heads;
  if (row >= args.batch.num_rows) return;  // the whole warp
  const int head = static_cast<int>(item % shape.num_value_heads);
  const int lane = threadIdx.x % kWarp;
  const DeltaSequence sequence(args.batch, args.batch.row_sequence[row]);
  const int64_t place = sequence.first_place + (row - sequence.first_row);
  const float* const in = args.in + (place * shape.num_value_heads + head) * shape.value_dim;
  const T* const z = ProjectedRow<T>(shape, row) + GateColumn(shape, head);
  const T* const weight = static_cast<const T*>(shape.norm);
  T* const out = static_cast<T*>(args.out) + (row * shape.num_value_heads + head) * shape.value_dim;
  float x[kDeltaOfLane];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kDeltaOfLane; ++i) {
    const int d = lane + i * kWarp;
    x[i] = d < shape.value_dim ? in[d] : 0.0f;
    squares = fmaf(x[i], x[i], squares);
  }
  const float mean = WarpSum(squares) / static_cast<float>(shape.value_dim);
  const float inverse = 1.0f / sqrtf(mean + shape.norm_eps);
#pragma unroll
  for (int i = 0; i < kDeltaOfLane; ++i) {
    const int d = lane + i * kWarp;
    if (d >= shape.value_dim) continue;
    const float gate = ToFloat(z[d]);
    FromFloat(x[i] * inverse * ToFloat(weight[d]) * (gate * Sigmoid(gate)), out[d]);
  }
}

}  // namespace

cudaError_t Launch(const DeltaAdvance& args, cudaStream_t stream) {
  if (!DeltaFits(args.shape)) return cudaErrorInvalidValue;
  if (args.batch.num_sequences == 0 || args.num_heads == 0) return cudaSuccess;
  if (args.shape.type == Element::kFloat32) {
    LaunchAdvance<float>(args, stream);
  } else {
    LaunchAdvance<__nv_bfloat16>(args, stream);
  }
  return cudaGetLastError();
}

cudaError_t Launch(const DeltaOutput& args, cudaStream_t stream) {
  if (!DeltaFits(args.shape)) return cudaErrorInvalidValue;
  if (args.batch.num_rows == 0) return cudaSuccess;
  const unsigned blocks = DeltaBlocks(args.batch.num_rows * args.shape.num_value_heads);
  if (args.shape.type == Element::kFloat32) {
    TANDEM_LAUNCH_EARLY(OutputKernel<float>, blocks, kDeltaWarps * kWarp, 0, stream, args);
  } else {
    TANDEM_LAUNCH_EARLY(OutputKernel<__nv_bfloat16>, blocks, kDeltaWarps * kWarp, 0, stream, args);
  }
  return cudaGetLastError();
}

}  // namespace tandem::model::cuda

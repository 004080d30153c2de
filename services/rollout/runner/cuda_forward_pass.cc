// ForwardPass for a CUDA device: everything on one stream; decode steps as CUDA graphs.
//
// With tensor parallelism the collectives are NCCL's, which the stream waits for like its own
// kernels, and which graphs hold too; the host waits once, at the end of a step. The group watches
// each replay as a whole, so that at the deadline it aborts what a lost rank leaves open.
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/comm/link_facts.h"
#include "common/comm/run_with_deadline.h"
#include "common/device/upload.h"
#include "common/model/device_attention.h"
#include "common/model/tensor_collectives.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "services/rollout/runner/forward_pass.h"

namespace tandem::rollout {
namespace {

// Tokens of a step that the input buffers have room for at first, and the numbers of each: its id and
// its position, or with images three positions, and its place among the placeholders.
constexpr int64_t kInputTokens = 8192;
constexpr int64_t kNumbersOfToken = 2;
constexpr int64_t kNumbersOfTokenWithImages = 5;

// Between two looks at a stream that waits for other ranks.
constexpr absl::Duration kPollPause = absl::Microseconds(20);
// In which kernels of an aborted communicator end.
constexpr absl::Duration kDrainAfterAbort = absl::Seconds(5);

// Text that follows images has the same position on every axis, which then serves as in a step without
// images, bit for bit (RotaryTables::Make()): so that decode steps of all kinds share their graphs.
at::Tensor PositionsOf(const ForwardBatch& batch) {
  const at::Tensor& positions = batch.positions;
  if (positions.dim() == 1) return positions;
  const auto* const first = positions.const_data_ptr<int64_t>();
  const int64_t count = positions.size(1);
  for (int64_t axis = 1; axis < positions.size(0); ++axis) {
    if (!std::equal(first, first + count, first + axis * count)) return positions;
  }
  return positions.select(0, 0);
}

// Between capture_begin() and capture_end(). Where an exception leaves it, the stream is given
// back.
class Capture {
 public:
  Capture(at::cuda::CUDAGraph& graph, at::cuda::MempoolId_t pool) : graph_(graph) {
    // Allocations and copies of other threads are not captured.
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
  }
  ~Capture() {
    if (ended_) return;
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      // The cause was already thrown.
    }
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  void End() {
    ended_ = true;
    graph_.capture_end();
  }

 private:
  at::cuda::CUDAGraph& graph_;
  bool ended_ = false;
};

class CudaForwardPass : public ForwardPass {
 public:
  CudaForwardPass(const model::Transformer& model, const model::PagedKvCache& cache,
                  const ForwardOptions& options, std::unique_ptr<model::DeviceAttention> attention)
      : model_(model),
        device_(cache.options().device),
        replays_(dynamic_cast<comm::ReplaysInGraphs*>(model.tensor_group())),
        graphs_wanted_(options.graphs && (model.tensor_group() == nullptr || replays_ != nullptr)),
        attention_(std::move(attention)),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device_.index())) {
    Reserve(kInputTokens *
            (model.spec().vision.has_value() ? kNumbersOfTokenWithImages : kNumbersOfToken));
  }

  ~CudaForwardPass() override {
    try {
      Synchronize();
    } catch (const std::exception&) {
      // The device is lost; there is nothing to wait for.
    }
  }

  std::shared_ptr<void> Enter() override {
    return std::make_shared<c10::cuda::CUDAStreamGuard>(stream_);
  }

  void Synchronize() override {
    comm::ProcessGroup* const group = model_.tensor_group();
    if (group == nullptr) {
      C10_CUDA_CHECK(cudaStreamSynchronize(stream_.stream()));
    } else {
      AwaitCollectives(*group);
    }
  }

  void Forget() override {
    Synchronize();
    graphs_.clear();
    c10::cuda::CUDACachingAllocator::emptyCache();
  }

  at::Tensor Run(const model::ParameterProvider& params, const ForwardBatch& batch) override {
    Synchronize();  // of a step that failed something may still be on its way
    const int64_t num_tokens = batch.token_ids.numel();
    const at::Tensor positions = PositionsOf(batch);
    const bool decodes = positions.dim() == 1 && !batch.image_tokens.defined() &&
                         std::all_of(batch.sequences.begin(), batch.sequences.end(),
                                     [](const auto& s) { return s.num_tokens == 1; });
    const int64_t graph_rows = graphs_wanted_ && decodes ? GraphRows(num_tokens) : 0;
    attention_->Plan(batch.sequences, graph_rows);
    const int64_t rows = graph_rows > 0 ? graph_rows : num_tokens;
    const Inputs inputs = Upload(batch, positions, rows);
    if (batch.recorder != nullptr) {
      batch.recorder->RecordOn(
          ExpertsBuffer(graph_rows > 0, rows, batch.recorder->values_per_token()));
    }
    at::Tensor x =
        graph_rows == 0
            ? Stages(params, inputs, batch.recorder, device::Upload(batch.image_rows, device_))
            : RunGraph(params, inputs, graph_rows, batch.recorder).narrow(0, 0, num_tokens);
    if (batch.recorder != nullptr) {
      Synchronize();  // or the copy would wait, without a deadline
      batch.recorder->Fetch();
    }
    return x;
  }

 private:
  struct Inputs {  // on the device
    at::Tensor ids;
    at::Tensor positions;
    at::Tensor image_tokens;  // undefined: no images
  };

  // A collective whose peers are gone does not end by itself: asking the group how it is does that,
  // at the deadline.
  void AwaitCollectives(const comm::ProcessGroup& group) {
    absl::Time broken_since = absl::InfiniteFuture();
    for (;;) {
      const cudaError_t state = cudaStreamQuery(stream_.stream());
      const absl::Status status = group.status();
      if (state == cudaSuccess && status.ok()) return;
      if (state != cudaErrorNotReady) {
        if (!status.ok()) throw model::CollectiveError(status);
        C10_CUDA_CHECK(state);
      }
      if (!status.ok()) {
        graphs_.clear();  // NCCL frees a communicator when no graph refers to it any more
        broken_since = std::min(broken_since, absl::Now());
        if (absl::Now() - broken_since > kDrainAfterAbort) throw model::CollectiveError(status);
      }
      absl::SleepFor(kPollPause);
    }
  }

  // One captured graph; its inputs are where Upload() puts them.
  struct Graph {
    at::cuda::CUDAGraph graph;
    at::Tensor x;
  };

  void Reserve(int64_t count) {
    if (host_.defined() && host_.numel() >= count) return;
    const auto type = at::TensorOptions(at::kLong);
    host_ = at::empty({count}, type.pinned_memory(true));
    on_device_ = at::empty({count}, type.device(device_));
    graphs_.clear();
  }

  // The ids, then the positions, [tokens] or [axes, tokens], each padded with zeros to `rows`, which are
  // the tokens where there are axes; then the places of images' rows.
  Inputs Upload(const ForwardBatch& batch, const at::Tensor& positions, int64_t rows) {
    const int64_t num_positions = std::max(rows, positions.numel());
    const int64_t num_places = batch.image_tokens.defined() ? batch.image_tokens.numel() : 0;
    const int64_t count = rows + num_positions + num_places;
    Reserve(count);
    int64_t* host = host_.mutable_data_ptr<int64_t>();
    const auto put = [&host](const at::Tensor& values, int64_t size) {
      int64_t* const end = std::copy_n(values.const_data_ptr<int64_t>(), values.numel(), host);
      std::fill(end, host + size, 0);
      host += size;
    };
    put(batch.token_ids, rows);
    put(positions, num_positions);
    if (num_places > 0) put(batch.image_tokens, num_places);
    C10_CUDA_CHECK(cudaMemcpyAsync(on_device_.mutable_data_ptr(), host_.const_data_ptr(),
                                   count * sizeof(int64_t), cudaMemcpyHostToDevice,
                                   stream_.stream()));
    Inputs inputs{on_device_.narrow(0, 0, rows), on_device_.narrow(0, rows, num_positions), {}};
    if (positions.dim() > 1) inputs.positions = inputs.positions.view(positions.sizes());
    if (num_places > 0) {
      inputs.image_tokens = on_device_.narrow(0, rows + num_positions, num_places);
    }
    return inputs;
  }

  // Where the choices of routers lie. Graphs keep the address of theirs.
  const at::Tensor& ExpertsBuffer(bool of_graph, int64_t rows, int64_t values) {
    at::Tensor& buffer = of_graph ? experts_of_graphs_ : experts_;
    if (!buffer.defined() || buffer.size(0) < rows) {
      buffer = at::empty({of_graph ? kMostGraphRows : rows, values},
                         at::TensorOptions(at::kInt).device(device_));
    }
    return buffer;
  }

  at::Tensor Stages(const model::ParameterProvider& params, const Inputs& inputs,
                    model::ExpertRecorder* recorder, const at::Tensor& image_rows = {}) {
    const model::RouterPass routers{.recorder = recorder};
    return RunStages(model_, params, inputs.ids, inputs.positions, *attention_, &routers,
                     inputs.image_tokens, image_rows);
  }

  at::Tensor RunGraph(const model::ParameterProvider& params, const Inputs& inputs, int64_t rows,
                      model::ExpertRecorder* recorder) {
    // Graphs hold addresses: of the weights, which are updated in place, and of the attention's
    // arrays. If one has moved, the graphs are captured again.
    const void* const weights = params.Get(0).const_data_ptr();
    const int64_t epoch = attention_->address_epoch();
    if (weights != weights_ || epoch != epoch_) graphs_.clear();
    weights_ = weights;
    epoch_ = epoch;
    const std::pair key(rows, recorder != nullptr);
    if (const auto found = graphs_.find(key); found != graphs_.end()) {
      found->second->graph.replay();
      if (replays_ != nullptr) {
        const absl::Status watched = replays_->WatchReplay("decode step");
        if (!watched.ok()) throw model::CollectiveError(watched);
      }
      return found->second->x;
    }
    // The first time as it is: libraries then have their handles and workspaces, and kernels are
    // loaded, none of which a capture may do.
    at::Tensor x = Stages(params, inputs, recorder);
    try {
      if (graphs_.empty()) pool_ = at::cuda::graph_pool_handle();
      auto graph = std::make_unique<Graph>();
      Capture capture(graph->graph, pool_);
      graph->x = Stages(params, inputs, recorder);
      capture.End();
      graphs_.emplace(key, std::move(graph));
    } catch (const std::exception& error) {
      telemetry::LogWarning("capturing a CUDA graph failed; decode steps run without CUDA graphs",
                            {{"rows", rows}, {"error", comm::FirstLine(error.what())}});
      graphs_wanted_ = false;
      graphs_.clear();
    }
    return x;
  }

  const model::Transformer& model_;
  const at::Device device_;
  comm::ReplaysInGraphs* const replays_;  // the ranks' group; null without one
  bool graphs_wanted_;
  std::unique_ptr<model::DeviceAttention> attention_;
  const c10::cuda::CUDAStream stream_;
  at::Tensor host_;                         // int64, page-locked
  at::Tensor on_device_;                    // int64
  at::Tensor experts_, experts_of_graphs_;  // int32
  // By rows, and whether they record the choices of routers. Their intermediate results share a pool,
  // for they run one after another.
  std::map<std::pair<int64_t, bool>, std::unique_ptr<Graph>> graphs_;
  at::cuda::MempoolId_t pool_{0, 0};
  const void* weights_ = nullptr;
  int64_t epoch_ = -1;
};

}  // namespace

absl::Status CheckCudaDevice(at::Device device) {
  const int count = c10::cuda::device_count();  // 0 where there is no driver
  if (device.has_index() && device.index() < count) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("rollout.device: ", device.str(),
                                             ": this process sees ", count,
                                             " GPUs; check nvidia-smi and CUDA_VISIBLE_DEVICES"));
}

absl::StatusOr<std::unique_ptr<ForwardPass>> CreateCudaForwardPass(const model::Transformer& model,
                                                                   const model::PagedKvCache& cache,
                                                                   const ForwardOptions& options) {
  RETURN_IF_ERROR(CheckCudaDevice(cache.options().device));
  const int64_t num_heads =
      model::PartOf(model.spec().full_attention(), model.table().tensor_parallel()).heads.size();
  ASSIGN_OR_RETURN(auto attention, model::CreateCudaAttention(cache, num_heads));
  try {
    const c10::cuda::CUDAGuard guard(cache.options().device);
    return std::make_unique<CudaForwardPass>(model, cache, options, std::move(attention));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("a rollout on ", cache.options().device.str(), ": ",
                                               comm::FirstLine(error.what())));
  }
}

}  // namespace tandem::rollout
